"""Redis Streams as a bus for agents: leases, atomic step commits, requests, dead letters.

Delivery is at least once, effects are exactly once. The bus knows nothing about agents or models:
it treats runs, steps and usage entries as bytes.
"""

from loopline import require_full_name
from loopline.bus import dead_letters, policies
from loopline.bus.admission import Admission
from loopline.bus.agreement import Agreement, read_agreement_at
from loopline.bus.budgets import Limits, Reservation, Scope
from loopline.bus.bus import CLIENT_PATIENCE, Bus, Spent
from loopline.bus.capabilities import Server, probe
from loopline.bus.commit import Finish, Join, Outgoing, StepCommit, Wait
from loopline.bus.connection import OUTAGE, retry_during_outage
from loopline.bus.consumer import Consumer
from loopline.bus.contents import ContentWriter, read_content
from loopline.bus.dead_letters import DeadLetter
from loopline.bus.delivery import Delivery
from loopline.bus.envelope import Envelope
from loopline.bus.errors import (
    BackgroundEnded,
    BudgetExceeded,
    BusError,
    BusUnavailable,
    DeadlineExceeded,
    DeploymentChanged,
    DeploymentMismatch,
    LeaseLost,
    MalformedEnvelope,
    MessageTooLarge,
    NoRoom,
    OtherVersion,
    Overloaded,
    Reject,
    RequestError,
    Retry,
    RewardConflict,
    RunEnded,
    UnknownPayload,
    UserCancelled,
    run_ended,
)
from loopline.bus.keys import Keys, Shard
from loopline.bus.log_consumer import LogConsumer
from loopline.bus.log_follower import is_entry_id
from loopline.bus.observer import Observer
from loopline.bus.policies import Policy, PolicyError, pool_of
from loopline.bus.presence import WorkerPresence, announce, live_workers
from loopline.bus.registry import Registry
from loopline.bus.replies import Reply, error_reply
from loopline.bus.requests import Inbox, RunEnd
from loopline.bus.rewards import publish_reward
from loopline.bus.run_state import OpenWait, RunState
from loopline.bus.settings import BusSettings
from loopline.bus.threads import ThreadHead, advance_thread, claim, read_thread
from loopline.bus.token_log import TokenWriter, Weights
from loopline.bus.trace_context import (
    TRACEPARENT_HEADER,
    TRACEPARENT_TAG,
    TraceContext,
    span_id_of,
    step_name,
    trace_id_of,
    traceparent_of,
)

require_full_name(__name__)

__all__ = [
    "CLIENT_PATIENCE",
    "OUTAGE",
    "TRACEPARENT_HEADER",
    "TRACEPARENT_TAG",
    "Admission",
    "Agreement",
    "BackgroundEnded",
    "BudgetExceeded",
    "Bus",
    "BusError",
    "BusSettings",
    "BusUnavailable",
    "Consumer",
    "ContentWriter",
    "DeadLetter",
    "DeadlineExceeded",
    "Delivery",
    "DeploymentChanged",
    "DeploymentMismatch",
    "Envelope",
    "Finish",
    "Inbox",
    "Join",
    "Keys",
    "LeaseLost",
    "Limits",
    "LogConsumer",
    "MalformedEnvelope",
    "MessageTooLarge",
    "NoRoom",
    "Observer",
    "OpenWait",
    "OtherVersion",
    "Outgoing",
    "Overloaded",
    "Policy",
    "PolicyError",
    "Registry",
    "Reject",
    "Reply",
    "RequestError",
    "Reservation",
    "Retry",
    "RewardConflict",
    "RunEnd",
    "RunEnded",
    "RunState",
    "Scope",
    "Server",
    "Shard",
    "Spent",
    "StepCommit",
    "ThreadHead",
    "TokenWriter",
    "TraceContext",
    "UnknownPayload",
    "UserCancelled",
    "Wait",
    "Weights",
    "WorkerPresence",
    "advance_thread",
    "announce",
    "claim",
    "dead_letters",
    "error_reply",
    "is_entry_id",
    "live_workers",
    "policies",
    "pool_of",
    "probe",
    "publish_reward",
    "read_agreement_at",
    "read_content",
    "read_thread",
    "retry_during_outage",
    "run_ended",
    "span_id_of",
    "step_name",
    "trace_id_of",
    "traceparent_of",
]
