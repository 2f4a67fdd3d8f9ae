"""ToolAlpaca's instructions as single steps: the first call of each golden solution.

Later calls depend on results of earlier ones, which the file does not contain. Instructions without
a single right call are left out, too: an action that asks the user, an optional action, and a
placeholder for a value that only the simulated user knew.
"""

from __future__ import annotations

from pathlib import Path

from loopline.agents.roles.umi.output import Action
from loopline.bench.datasets import toolalpaca
from loopline.trainers.data.json_files import Reading, Unreadable
from loopline.trainers.data.trajectories import Step, Trajectory, require_writable

NAME = "toolalpaca"
SPLITS = {NAME: "simulated", f"{NAME}_real": "real"}
"""Evaluation of each split."""


def read_first_calls(data: Path | None, split: str = NAME) -> Reading[Trajectory]:
    """Return a one-step trajectory for each instruction, and the skipped ones. Raises DataError."""
    reading = toolalpaca.load(data, SPLITS[split])
    trajectories: list[Trajectory] = []
    skipped = list(reading.skipped)
    for question in reading.records:
        try:
            trajectories.append(_trajectory(question))
        except Unreadable as error:
            skipped.append(error.at(question.id))
    return Reading(tuple(trajectories), tuple(skipped))


def _trajectory(question: toolalpaca.Question) -> Trajectory:
    first = question.golden[0]
    if first.name not in question.functions:
        raise Unreadable("the first action is not a function of the API", first.name)
    if first.optional:
        raise Unreadable("the first call is optional", first.name)
    if first.arguments is None:
        raise Unreadable("the first call has a placeholder", first.written)
    trajectory = Trajectory(
        source=NAME,
        id=question.id,
        instruction_id=question.id,
        instruction=question.instruction,
        tools=toolalpaca.tools_of(question),
        steps=(Step("", "call", Action(first.name, first.arguments)),),
    )
    require_writable(trajectory)
    return trajectory
