"""Records of what the bus holds of a run."""

from __future__ import annotations

from loopline.agents.records import Run, Step, Trajectory
from loopline.agents.workflows import add_rewards
from loopline.bus import RunState
from loopline.runtime.errors import UserError


class RunUnknown(UserError):
    """The bus has no such run: it never was admitted, or its retention is over."""


def run_of(state: RunState) -> Run:
    """Raises `RunUnknown`."""
    if state.state == "missing":
        raise RunUnknown(
            f"the bus has no run {state.run_id}",
            hint="`runtime runs ls` lists those it has; older ones are in the store.",
        )
    return Run.model_validate_json(state.run)


def steps_of(state: RunState) -> tuple[Step, ...]:
    """Raises `RunUnknown`."""
    run_of(state)
    return tuple(Step.model_validate_json(step) for step in state.steps)


def trajectory_of(state: RunState) -> Trajectory:
    """What the bus holds of an ended run, as the record that the store keeps.

    Raises `RunUnknown`.
    """
    steps = steps_of(state)
    return add_rewards(
        Trajectory.from_texts(
            state.run, steps, state.outcome, state.answer, state.reason, state.ended
        )
    )
