"""Decisions that mean the same in all our workflows."""

from __future__ import annotations

from pydantic import JsonValue

from loopline.agents.errors import NoRoute, outcome_of_failure
from loopline.agents.records import Outcome, Step
from loopline.agents.workflows.routing import Finish


def finish_with_answer(step: Step) -> Finish:
    """The role's answer is the run's answer."""
    return Finish(Outcome.ANSWERED, answer=_text(step.decision.data.get("answer")))


def finish_without_answer(reason: str) -> Finish:
    """The run ends without an answer."""
    return Finish(Outcome.GAVE_UP, reason=reason)


def finish_given_up_by_role(step: Step) -> Finish:
    """A role gave up, and no other role replaces it."""
    return finish_without_answer(f"{step.agent}: {_text(step.decision.data.get('reason'))}")


def finish_with_failure(step: Step) -> Finish:
    """A request of the step failed for good."""
    kind = _text(step.decision.data.get("failure"))
    reason = _text(step.decision.data.get("reason"))
    return Finish(outcome_of_failure(kind), reason=f"{step.agent}: {kind}: {reason}")


def no_route_error(workflow: str, step: Step) -> NoRoute:
    """The error for a decision that a workflow does not know."""
    return NoRoute(
        f"workflow {workflow!r} does not know what follows the decision {step.decision.kind!r} "
        f"of role {step.agent!r} (turn {step.turn}, branch {step.branch})"
    )


def _text(value: JsonValue) -> str:
    return value if isinstance(value, str) else ""
