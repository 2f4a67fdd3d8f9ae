"""Texts that may still be refused: no follower of the run reads them before the verdict."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from loopline.agents.protocols import Host
from loopline.agents.records import Call, Step


@runtime_checkable
class PublishingHost(Protocol):
    """A host that publishes completions while they are written."""

    def unpublished(self) -> Host:
        """The same host, but without publishing. Its requests are numbered together with the step's
        other requests."""
        ...


def held_back(host: Host) -> Host:
    """The host for completions that a ladder or a person may refuse."""
    return host.unpublished() if isinstance(host, PublishingHost) else host


def accepted_call(step: Step) -> Call | None:
    """The completion that is the answer of a step whose texts could be refused; None for another
    step. A follower that did not get its text while it was written may get it now."""
    decision = step.decision
    judged = "escalation" in step.observation or "verification" in decision.data
    approved = any(approval.name == step.agent for approval in step.approvals)
    calls = step.candidates[step.selected].calls if step.candidates else ()
    samples = decision.data.get("samples", 0)  # after it: further answers, of a cascade
    place = len(calls) - 1 - (samples if isinstance(samples, int) else 0)
    if decision.kind != "answer" or not (judged or approved) or not 0 <= place < len(calls):
        return None
    return calls[place]
