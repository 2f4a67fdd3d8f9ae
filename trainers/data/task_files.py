"""A file of tasks that a training plays instead of generated puzzles: JSON lines, each a
`records.Task`, all of the same team of `pair`. `bench tasks` writes such files."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field

from loopline.agents.environments import math_team
from loopline.agents.environments.code import team as code_team
from loopline.agents.environments.puzzle_splits import Split
from loopline.agents.environments.registry import split_of_task
from loopline.agents.errors import InvalidTask, PluginError
from loopline.agents.records import Record, Run, Task
from loopline.agents.workflows.pair import PairWorkflow, team_of
from loopline.runtime.client.run_ids import new_run_id
from loopline.runtime.terminal.pluralize import format_count
from loopline.trainers.data.data_files import read_records
from loopline.trainers.data.json_files import Limits, Unreadable, fit
from loopline.trainers.errors import UnreadableData

JUDGED = (code_team.ENVIRONMENT, math_team.ENVIRONMENT)
"""Environments in which only a judge knows the right answer."""

_LIMITS = Limits(file_bytes=4 * 2**30, line_bytes=64 * 2**20)


class TeamTasks(Record):
    """Facts about a file of tasks that is played instead of a game."""

    sha256: str
    """SHA-256 of the file."""
    environment: str
    """Environment of all its tasks."""
    team: tuple[str, ...]
    """Agents that play them, in the order of a turn."""
    count: int = Field(ge=1)


@dataclass(frozen=True)
class TaskFile:
    """A file and its contents."""

    about: TeamTasks
    tasks: tuple[Task, ...]


@dataclass(frozen=True)
class _Line:
    number: int
    task: Task
    team: tuple[str, ...]

    @property
    def team_label(self) -> str:
        return f"{self.task.environment} for {', '.join(self.team)}"


def read_tasks(path: Path) -> TaskFile:
    """Read a file of tasks. Raises `UnreadableData`, which reports the line, for a file without
    tasks, and for a task that `pair` would refuse, that belongs to another team than the first,
    that is repeated, or that is a puzzle of another split than the train one."""
    reading = read_records(path, _line, _LIMITS)
    if reading.skipped:
        first = reading.skipped[0]
        raise UnreadableData(
            f"--tasks: {path.parent / first.where}: {first.reason} ({first.detail}): fix or "
            "remove it, or write the file again with `bench tasks`"
        )
    lines = reading.records
    if not lines:
        raise UnreadableData(f"--tasks: {path} contains no task: create it with `bench tasks`")
    _require_of_train(path, lines)
    line_numbers: dict[str, int] = {}
    for line in lines:
        if line.team_label != lines[0].team_label:
            raise UnreadableData(
                f"--tasks: {path}:{line.number} is a task of {line.team_label}, but line "
                f"{lines[0].number} is one of {lines[0].team_label}: a file must have a single "
                "team; use one file for each"
            )
        before = line_numbers.setdefault(line.task.model_dump_json(), line.number)
        if before != line.number:
            raise UnreadableData(
                f"--tasks: {path}:{line.number} repeats the task of line {before}: remove one"
            )
    with path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    about = TeamTasks(
        sha256=sha256,
        environment=lines[0].task.environment,
        team=lines[0].team,
        count=len(lines),
    )
    return TaskFile(about, tuple(line.task for line in lines))


def _require_of_train(path: Path, lines: Sequence[_Line]) -> None:
    """Raise `UnreadableData` for puzzles that are kept for measuring and for choosing settings."""
    splits = [(line, split_of_task(line.task)) for line in lines]
    held_out = [(line, split) for line, split in splits if split not in (None, Split.TRAIN)]
    if held_out:
        (line, split), more = held_out[0], len(held_out) - 1
        also = f", and {format_count(more, 'later line')} of a held-out one" if more else ""
        raise UnreadableData(
            f"--tasks: {path}:{line.number} is a {line.task.environment} puzzle of the {split} "
            f"split{also}: these are for benchmarks and for choosing settings. Remove such lines: "
            "a file may contain only puzzles of the train split"
        )


def _line(number: int, value: Any) -> _Line:
    """Parse one task. Raises `Unreadable`."""
    task = fit(Task, value)
    run = Run(
        id=new_run_id(), task=task, workflow=PairWorkflow.name, policies={},
        created=0.0, deadline=0.0,
    )  # fmt: skip
    try:
        return _Line(number, task, team_of(run))
    except (InvalidTask, PluginError) as error:
        raise Unreadable("no task of a team", str(error)) from error
