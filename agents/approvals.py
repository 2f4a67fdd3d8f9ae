"""Approval of an agent's tool call, or of its answer.

An approval is bound to a digest of exactly the approved content, and to its step's request, which
is made once. A step that needs an approval is deferred, and repeated after the decision; its
earlier requests are stored.
"""

from __future__ import annotations

import hashlib
import json
from typing import Literal, Protocol, runtime_checkable

from pydantic import Field, ValidationError

from loopline.agents.records import Approval, JsonObject, Record

DEFAULT_APPROVAL_SECONDS = 7 * 86_400.0
"""Seconds after which an unapproved call is refused."""
APPROVAL_ERROR = "approval"
"""Kind of the error that answers a request; its message is an `ApprovalRequest`."""


class ApprovalRequest(Record):
    """A call or an answer that waits for approval."""

    request: str
    """Names the call or the answer within its run."""
    kind: Literal["tool", "answer", "outcome"]
    """`outcome`: the outcome of a call that was started and must not be repeated."""
    name: str
    """Name of the tool; for an answer, the agent."""
    agent: str
    arguments: JsonObject
    """The exact content to approve; for an answer `{"answer": …}`."""
    digest: str
    seconds: float = Field(gt=0)
    """Seconds that the request waits."""


class ApprovalNeeded(Exception):
    """The step can't continue before there is a decision. Roles do not catch this."""

    def __init__(self, request: ApprovalRequest) -> None:
        super().__init__(f"{request.name} needs approval ({request.digest[:12]})")
        self.request = request


@runtime_checkable
class ApprovingHost(Protocol):
    """A host whose agents' answers can be approved."""

    async def approve(self, agent: str, answer: JsonObject, seconds: float) -> Approval:
        """The decision about an answer. Raises `ApprovalNeeded` while there is none."""
        ...


def digest_of(kind: str, name: str, arguments: JsonObject) -> str:
    """SHA-256 of the content to approve, in hexadecimal."""
    text = json.dumps([kind, name, arguments], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def read_decision(decision: bytes | None, request: str, name: str, digest: str) -> Approval | None:
    """The decision about exactly this content; None if none, or only about other content."""
    if decision is None:
        return None
    try:
        fields = {"request": request, "name": name, **json.loads(decision)}
        approval = Approval.model_validate(fields)
    except (ValueError, TypeError, ValidationError):
        return None
    return approval if approval.digest == digest else None


def refusal_of(approval: Approval) -> str:
    """Text for a model whose call or answer was not approved."""
    if approval.decision == "expired":
        return f"nobody approved {approval.name} in time, so it was not done"
    why = f": {approval.reason}" if approval.reason else ""
    return f"a person has refused {approval.name}, so it was not done{why}"
