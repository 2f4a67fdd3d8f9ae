"""Errors of an ask, one type per way to fail. All are `UserError`s and contain the run's id."""

from __future__ import annotations

from loopline.agents.records import Outcome, Trajectory
from loopline.runtime.errors import UserError


class AskError(UserError):
    """The run ended without an answer that can be returned."""

    def __init__(self, message: str, run_id: str) -> None:
        super().__init__(message, hint=f"`runtime runs show {run_id}` shows its steps.")
        self.run_id = run_id


class AnswerTimeout(AskError, TimeoutError):
    """There was no answer within the caller's timeout. The run was cancelled."""


class RunCancelled(AskError):
    """Another caller cancelled the run."""


class GaveUp(AskError):
    """The model did not reach an answer."""


class WrongAnswer(GaveUp):
    """The model's answer never fitted the requested type. `answer` is its last one."""

    answer: str = ""


class OverBudget(AskError):
    """A call of the run did not fit in a budget and was not made."""


class ThreadBusy(AskError):
    """The previous run of this thread did not end within the caller's timeout."""


def error_of(trajectory: Trajectory) -> AskError:
    """Return the error to raise for a run that ended without an answer."""
    run_id = trajectory.run.id
    reason = trajectory.reason or "no reason was given"
    match trajectory.outcome:
        case Outcome.DEADLINE:
            return AnswerTimeout(f"the run found no answer in time: {reason}", run_id)
        case Outcome.BUDGET:
            return OverBudget(f"a budget ended the run: {reason}", run_id)
        case Outcome.CANCELLED:
            return RunCancelled(f"the run was cancelled: {reason}", run_id)
        case Outcome.GAVE_UP:
            last = trajectory.steps[-1].decision.data if trajectory.steps else {}
            if "wrong_answer" in last:
                error = WrongAnswer(f"the answer has the wrong type: {reason}", run_id)
                error.answer = str(last["wrong_answer"])
                return error
            return GaveUp(f"the run gave up: {reason}", run_id)
        case outcome:
            return AskError(f"the run ended as {outcome.value}: {reason}", run_id)
