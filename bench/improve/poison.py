"""A poisoned batch: a store of the same escalations, each with the answer to another question."""

from __future__ import annotations

from pathlib import Path

from loopline.agents.records import Trajectory
from loopline.testing.recorded_runs import as_on_the_bus
from loopline.trainers.data.store import iterate_trajectories
from loopline.trainers.distill.escalations import read_escalations
from loopline.workers.recorder import TRAJECTORY_SCHEMA, Table, trajectory_row


async def write_swapped_store(store: Path, output: Path) -> int:
    """Write a store with swapped labels, unless it exists; return its number of escalations. Raises
    `UnreadableData` if there is no store."""
    runs = [escalation.run.id for escalation in read_escalations(store).records]
    folder = output / "trajectories"
    if folder.exists():
        return len(runs)
    by_run = {
        trajectory.run.id: trajectory
        for trajectory in iterate_trajectories(store, "cascade", [])
        if trajectory.run.id in set(runs)
    }
    table = Table(folder, 0, TRAJECTORY_SCHEMA, trajectory_row)
    await table.write(
        [
            (f"1-{at}", as_on_the_bus(_with_answer_of(by_run[run], by_run[runs[at - 1]])))
            for at, run in enumerate(runs)
        ]
    )
    return len(runs)


def _with_answer_of(trajectory: Trajectory, other: Trajectory) -> Trajectory:
    answers = {step.agent: step for step in other.steps}
    steps = tuple(
        step
        if step.agent != "solo"
        else answers["solo"].model_copy(update={"run_id": trajectory.run.id})
        for step in trajectory.steps
    )
    return trajectory.model_copy(update={"steps": steps, "answer": other.answer})
