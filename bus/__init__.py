"""Redis Streams as a bus for agents: leases, atomic step commits, requests, dead letters.

Delivery is at least once, effects are exactly once. The bus knows nothing of agents or models:
runs, steps and usage entries are bytes to it.
"""

from bus import dead_letters, policies
from bus.agreement import Agreement, agreed_on
from bus.bus import CLIENT_PATIENCE, Admission, Bus
from bus.capabilities import Server, probe
from bus.commit import Finish, Join, Outgoing, StepCommit
from bus.connection import OUTAGE, outlast
from bus.consumer import Consumer
from bus.dead_letters import DeadLetter
from bus.delivery import Delivery
from bus.envelope import Envelope, traceparent_of
from bus.errors import (
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
    Overloaded,
    Reject,
    RequestError,
    Retry,
    RunEnded,
    UnknownPayload,
    UserCancelled,
    run_ended,
)
from bus.keys import Keys, Shard
from bus.log_consumer import LogConsumer
from bus.policies import Policy, PolicyError, pool_of
from bus.presence import WorkerPresence, announce, present
from bus.registry import Registry
from bus.replies import error_reply
from bus.requests import Inbox
from bus.run_state import RunState
from bus.settings import BusSettings
from bus.token_log import TokenWriter, Weights

__all__ = [
    "CLIENT_PATIENCE",
    "OUTAGE",
    "Admission",
    "Agreement",
    "BackgroundEnded",
    "BudgetExceeded",
    "Bus",
    "BusError",
    "BusSettings",
    "BusUnavailable",
    "Consumer",
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
    "LogConsumer",
    "MalformedEnvelope",
    "MessageTooLarge",
    "Outgoing",
    "Overloaded",
    "Policy",
    "PolicyError",
    "Registry",
    "Reject",
    "RequestError",
    "Retry",
    "RunEnded",
    "RunState",
    "Server",
    "Shard",
    "StepCommit",
    "TokenWriter",
    "UnknownPayload",
    "UserCancelled",
    "Weights",
    "WorkerPresence",
    "agreed_on",
    "announce",
    "dead_letters",
    "error_reply",
    "outlast",
    "policies",
    "pool_of",
    "present",
    "probe",
    "run_ended",
    "traceparent_of",
]
