"""The trainings that are compared, and the result of each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from pydantic import Field

from loopline.agents.records import Record
from loopline.trainers.core.json_records import find_record
from loopline.trainers.grpo.arms.results import read_result as read_arm
from loopline.trainers.grpo.arms.training import Reinforced
from loopline.trainers.grpo.demo.settings import DemoSettings

RESULT = "result.json"

Correction = Literal["none", "clip", "truncated", "token"]
"""Corrections of `loopline.trainers.grpo.losses`; `token` is the decoupled objective."""
CORRECTIONS: tuple[Correction, ...] = ("none", "clip", "truncated", "token")
TITLES: dict[Correction, str] = {
    "none": "none",
    "clip": "clip",
    "truncated": "truncated IS",
    "token": "decoupled",
}


class StalenessSettings(Record):
    """Settings of every cell."""

    updates: int = Field(default=48, ge=1)
    """Updates of each cell; all learn from the same number of batches."""
    demo: DemoSettings = DemoSettings(seeds=(1,), reinforced=Reinforced(episodes=24))
    """The model, its warm start, the puzzles and the rates."""


class Cell(Record):
    """One training, or the warm start of all trainings with this seed."""

    seed: int
    age: int | None = None
    """Age of the samples in versions; None for the warm start."""
    correction: Correction = "token"

    @property
    def name(self) -> str:
        if self.age is None:
            return f"seed {self.seed}, warm start"
        return f"seed {self.seed}, {self.age} versions ago, {TITLES[self.correction]}"

    @property
    def needs(self) -> tuple[Cell, ...]:
        """Return the warm start of its seed."""
        return () if self.age is None else (Cell(seed=self.seed),)

    def folder(self, output: Path) -> Path:
        """Folder of the result; the warm start uses the folder of the demonstration's arm."""
        seed = output / f"seed-{self.seed}"
        if self.age is None:
            return seed / "warm-start"
        return seed / f"{self.age}-{self.correction}"


class CellResult(Record):
    """Result of a training."""

    cell: Cell
    outcomes: str = Field(pattern=r"^[01]+$")
    """Outcomes of greedy play of the held-out puzzles, in order: `1` solved, `0` not."""
    effective_samples: tuple[float, ...]
    """Effective share of tokens under the weights π_prox/π_behav, for each update that learned from
    samples of the full age."""
    ages: tuple[float, ...]
    """Mean age of the samples of the same updates, in versions."""
    clipped: float
    """Share of these updates' tokens without a gradient, on average."""
    updates: int
    """Number of updates made."""
    stopped: str
    """Reason why there were fewer updates; empty if all were made."""
    tokens: int
    """Tokens through the model in both directions, padding included."""
    cpu_seconds: float

    @property
    def solved(self) -> int:
        return self.outcomes.count("1")


def schedule(updates: int, age: int) -> Iterator[tuple[range, int]]:
    """Yield, for each version from 0, the batches that it plays and the batch that it learns from.

    This is the pipeline of an asynchronous training with maximum lag: version 0 plays age + 1
    batches, each later version plays one more, and every update takes the oldest batch. So version
    v learns from batch v, which version max(0, v − age) played.
    """
    played = 0
    for version in range(updates):
        ahead = min(updates, version + age + 1)
        yield range(played, ahead), version
        played = ahead


def cells_of(
    settings: StalenessSettings, ages: tuple[int, ...], corrections: tuple[Correction, ...]
) -> list[Cell]:
    """Return all cells; those that others depend on come first."""
    seeds = settings.demo.seeds
    warm = [Cell(seed=seed) for seed in seeds]
    return warm + [
        Cell(seed=seed, age=age, correction=correction)
        for age in ages
        for correction in corrections
        for seed in seeds
    ]


def cell_is_finished(cell: Cell, output: Path) -> bool:
    """Whether the cell has a result. Raises `UnreadableModel`."""
    if cell.age is None:
        return read_arm(cell.folder(output)) is not None
    return read_result(cell, output) is not None


def read_result(cell: Cell, output: Path) -> CellResult | None:
    """Return the result of a finished training; None if it is not finished. Raises
    `UnreadableModel`."""
    return find_record(
        cell.folder(output) / RESULT, CellResult, "remove it, and run the command again"
    )
