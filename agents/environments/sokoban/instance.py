"""A Sokoban instance: a level, and how it is played."""

from __future__ import annotations

from functools import cached_property
from typing import Self

from pydantic import Field, model_validator

from loopline.agents.environments.grid import canonical
from loopline.agents.environments.puzzle_splits import Split, content_hash, split_of
from loopline.agents.environments.sokoban.level import Level, Play, parse_level
from loopline.agents.environments.team_episode import Setting
from loopline.agents.records import Record, Task

ENVIRONMENT = "sokoban"
LEAST_SIDE, MOST_SIDE = 5, 10
MAX_BOXES = 6


class SokobanSetting(Setting):
    """Setting of Sokoban: how a level is shown and played."""

    listed: bool = False
    """Whether every position is shown as `(row, column)`, as in calls, instead of a drawing, for
    models too small to count columns."""


class SokobanInstance(Record):
    """A level: the content of `records.Task.instance`. Generated levels have a solution; for others
    this is not checked, since that could take too long."""

    level: tuple[str, ...] = Field(min_length=LEAST_SIDE, max_length=MOST_SIDE)
    setting: SokobanSetting = SokobanSetting()

    @model_validator(mode="after")
    def _check_level(self) -> Self:
        level, play = self.parsed
        if not LEAST_SIDE <= level.columns <= MOST_SIDE:
            raise ValueError(f"a level is {LEAST_SIDE} to {MOST_SIDE} cells wide")
        if len(play.boxes) > MAX_BOXES:
            raise ValueError(f"a level has at most {MAX_BOXES} boxes, not {len(play.boxes)}")
        if level.solved(play):
            raise ValueError("every box is already on a target")
        if level.stuck_boxes(play):
            raise ValueError("a box is stuck in a corner")
        return self

    @cached_property
    def parsed(self) -> tuple[Level, Play]:
        """The level, with the initial positions of boxes and player."""
        return parse_level(self.level)

    @property
    def layout(self) -> str:
        """Walls and targets up to translation, rotation and reflection, which decide the split."""
        return canonical(self.parsed[0].layout())

    @property
    def split(self) -> Split:
        return split_of(self.layout)

    @property
    def id(self) -> str:
        """First 16 hex digits of the level's SHA-256."""
        return content_hash("\n".join(self.level))[:16]

    @property
    def task(self) -> Task:
        """The task record."""
        return Task(
            environment=ENVIRONMENT,
            instance=self.model_dump(mode="json"),
            prompt=f"Solve a Sokoban level of {len(self.level)} x {len(self.level[0])} cells.",
        )
