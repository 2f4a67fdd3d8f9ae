"""Reads runs on the bus as records."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from loopline.agents.errors import VersionMismatch
from loopline.agents.records import Run, Step, Trajectory
from loopline.agents.workflows import add_rewards
from loopline.bus import TRACEPARENT_TAG, RunState, TraceContext, trace_id_of
from loopline.runtime.errors import UserError
from loopline.workers.records_at_hand import run_at_hand, steps_at_hand

T = TypeVar("T")


class RunUnknown(UserError):
    """The bus does not have the run: it was never admitted, or its retention time is over."""


def run_of(state: RunState) -> Run:
    """Raises `RunUnknown`."""
    if state.state == "missing":
        raise RunUnknown(
            f"the bus has no run {state.run_id}",
            hint="`runtime runs ls` lists those it has; older ones are in the store.",
        )
    return _read(state, lambda: run_at_hand(state))


def steps_of(state: RunState) -> tuple[Step, ...]:
    """Raises `RunUnknown`."""
    run_of(state)
    return _read(state, lambda: steps_at_hand(state))


def without_own_trace(trajectory: Trajectory) -> Trajectory:
    """Return the trajectory without the tag that names a span of the run's own trace, since a fork
    has its own trace. The tag stays if it belongs to the trace of a client."""
    run = trajectory.run
    context = TraceContext.parse(run.tags.get(TRACEPARENT_TAG, ""))
    if context is None or context.trace_id != trace_id_of(run.id):
        return trajectory
    tags = {name: value for name, value in run.tags.items() if name != TRACEPARENT_TAG}
    return trajectory.model_copy(update={"run": run.model_copy(update={"tags": tags})})


def _read(state: RunState, read: Callable[[], T]) -> T:
    try:
        return read()
    except VersionMismatch as error:
        raise UserError(
            f"run {state.run_id} can't be read: {error}", hint="use the program that wrote it."
        ) from error


def trajectory_of(state: RunState) -> Trajectory:
    """Return the store's record of an ended run, built from its state on the bus.

    Raises `RunUnknown`.
    """
    run = run_of(state)
    steps = _read(state, lambda: steps_at_hand(state))
    return add_rewards(
        Trajectory.from_texts(run, steps, state.outcome, state.answer, state.reason, state.ended)
    )
