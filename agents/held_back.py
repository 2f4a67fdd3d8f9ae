"""Texts that may still be refused: nobody who follows the run reads them before the verdict."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from loopline.agents.protocols import Host
from loopline.agents.records import Call, Step


@runtime_checkable
class PublishingHost(Protocol):
    """A host whose completions are published while they are written."""

    def unpublished(self) -> Host:
        """The same host, whose completions are published by nobody. Its requests are numbered along
        with the others of the step."""
        ...


def held_back(host: Host) -> Host:
    """The host for completions that a ladder or a person may refuse."""
    return host.unpublished() if isinstance(host, PublishingHost) else host


def accepted_call(step: Step) -> Call | None:
    """The completion that is the answer of a step whose texts could be refused; None for another
    step. A follower that was not told of its text while it was written may have it now."""
    decision = step.decision
    judged = "escalation" in step.observation or "verification" in decision.data
    approved = any(approval.name == step.agent for approval in step.approvals)
    calls = step.candidates[step.selected].calls if step.candidates else ()
    samples = decision.data.get("samples", 0)  # behind it: further answers, of a cascade
    place = len(calls) - 1 - (samples if isinstance(samples, int) else 0)
    if decision.kind != "answer" or not (judged or approved) or not 0 <= place < len(calls):
        return None
    return calls[place]
