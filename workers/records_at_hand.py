"""The records of a run on the bus: from memory if this process wrote them, otherwise parsed."""

from __future__ import annotations

from loopline.agents.records import Run, Step
from loopline.agents.versions import read_run, read_steps
from loopline.bus import RunState


def run_at_hand(state: RunState) -> Run:
    """The run's record. Raises `VersionMismatch`."""
    record = state.run_record
    return record if isinstance(record, Run) else read_run(state.run)


def steps_at_hand(state: RunState) -> tuple[Step, ...]:
    """The run's journal. Raises `VersionMismatch`."""
    records = state.step_records
    if records is not None:
        steps = tuple(record for record in records if isinstance(record, Step))
        if len(steps) == len(state.steps):
            return steps
    return read_steps(state.steps)
