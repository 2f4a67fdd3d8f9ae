"""The cells to train, and their files.

    OUTPUT/settings.json                         the settings of every cell
    OUTPUT/data/                                 the training instructions
    OUTPUT/cells/<size>/settings.json            the size and its compute
    OUTPUT/cells/<size>/<method>-<seed>/
        training/                                as `train glpft` writes it
        results.jsonl                            one line per run
    OUTPUT/report.md, report.json

Sizes, seeds and methods may be added to the same folder; finished work is not repeated.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pydantic import Field, ValidationError

from loopline.agents.environments.api_worlds import Split
from loopline.agents.records import JsonObject, Record
from loopline.bench.append_log import corrupt_line_error, read_log
from loopline.bench.datasets import Item
from loopline.bench.errors import UsageError
from loopline.bench.experiments.harness import claim, parse_names
from loopline.bench.results import Result
from loopline.bench.tools import worlds
from loopline.trainers.glpft.settings import MICRO, SIZES, Size
from loopline.trainers.glpft.stages import METHODS, Method

HELD_OUT = (Split.UNSEEN_WORLDS, Split.UNSEEN_WORDINGS, Split.UNSEEN_COMBINATIONS)
APART = Split.UNSEEN_APIS
OPTIONS: JsonObject = {"calculator": False, "constrained": True, "tool_style": "signatures"}
"""Options of the workflows: those of `bench tools`, in the form on which the models were
trained."""


def schedules_sha256() -> str:
    """SHA-256 of the schedules with which `train glpft` trains random weights."""
    table = {name: schedule.model_dump() for name, schedule in MICRO.items()}
    return hashlib.sha256(json.dumps(table, sort_keys=True).encode()).hexdigest()


class Common(Record):
    """Settings of every cell."""

    instructions: int = Field(ge=1)
    """Number of training instructions."""
    data_seed: int
    samples: int = Field(ge=len(HELD_OUT), le=worlds.MAX_SAMPLES)
    """Held-out instructions, the same number from each of the three splits."""
    unseen_apis: int = Field(ge=0, le=worlds.MAX_SAMPLES)
    """Number of additional instructions that need APIs that training never sees."""
    question_seed: int
    schedules: str = Field(default_factory=schedules_sha256)
    """SHA-256 of the table of learning rates: other rates yield other cells."""


class SizeBudget(Record):
    """One size."""

    size: Size
    tokens: int = Field(ge=1)
    """Compute of each cell, padding included."""


class Cell(Record):
    """One method at one size with one seed."""

    size: str
    method: Method
    seed: int
    budget: SizeBudget

    @property
    def name(self) -> str:
        return f"{self.size} {self.method} {self.seed}"

    @property
    def needs(self) -> tuple[Cell, ...]:
        """No dependencies: a cell copies the common start of its methods from another cell, or
        creates it."""
        return ()

    def folder(self, output: Path) -> Path:
        return output / "cells" / self.size / f"{self.method}-{self.seed}"

    def siblings(self, output: Path) -> list[Path]:
        """Return the folders of the other methods with this size and seed."""
        others = [self.model_copy(update={"method": method}) for method in METHODS]
        return [other.folder(output) for other in others if other != self]


@dataclass(frozen=True)
class GlpftGrid:
    """The cells of one command."""

    output: Path
    common: Common
    sizes: dict[str, SizeBudget]
    methods: tuple[Method, ...]
    seeds: tuple[int, ...]
    jobs: int

    @property
    def cells(self) -> list[Cell]:
        """Cells in order of execution: seed by seed, so that cells finished before an interruption
        can be compared."""
        return [
            Cell(size=size, method=method, seed=seed, budget=budget)
            for seed in self.seeds
            for method in self.methods
            for size, budget in self.sizes.items()
        ]

    @cached_property
    def items(self) -> tuple[Item, ...]:
        return items_of(self.common)

    def claim(self) -> None:
        """Claim the folder for this experiment. Raises `OutputError` if it was created with other
        settings, or has other content."""
        claim(self.output, self.common)
        for name, size in self.sizes.items():
            claim(self.output / "cells" / name, size)


def grid_of(
    output: Path,
    *,
    sizes: str,
    seeds: str,
    methods: str,
    tokens: str,
    common: Common,
    jobs: int,
) -> GlpftGrid:
    """Build the grid from the options as typed. Raises `UsageError`."""
    names = parse_names("--sizes", sizes, list(SIZES))
    budgets = _numbers("--tokens", tokens.split(","), tokens)
    if len(budgets) not in (1, len(names)):
        raise UsageError(
            f"--tokens takes one number, or one for each of the {len(names)} sizes; got {tokens!r}"
        )
    if len(budgets) == 1:
        budgets *= len(names)
    method_names = parse_names("--methods", methods, METHODS)
    return GlpftGrid(
        output=output,
        common=common,
        sizes={
            name: SizeBudget(size=SIZES[name], tokens=budget)
            for name, budget in zip(names, budgets, strict=True)
        },
        methods=tuple(method for name in method_names for method in METHODS if method == name),
        seeds=tuple(_numbers("--seeds", parse_names("--seeds", seeds), seeds)),
        jobs=jobs,
    )


def items_of(common: Common) -> tuple[Item, ...]:
    """Return the held-out instructions with alternating splits; those with unseen APIs come
    last."""
    return (
        *worlds.items_in_turn(HELD_OUT, common.samples, common.question_seed),
        *worlds.items_in_turn((APART,), common.unseen_apis, common.question_seed),
    )


def split_of(item: Item) -> str:
    """Return the split of the simulator that an instruction belongs to."""
    return str(item.about["split"])


def data_folder(output: Path) -> Path:
    """Folder of the training instructions."""
    return output / "data"


def training_folder(folder: Path) -> Path:
    """Folder of a cell's training."""
    return folder / "training"


def results_path(folder: Path) -> Path:
    """Path of a cell's results."""
    return folder / "results.jsonl"


def read_results(folder: Path) -> dict[str, Result]:
    """Read a cell's results so far, by item. Raises `OutputError` that names a damaged line."""
    path = results_path(folder)
    results: dict[str, Result] = {}
    for number, record in read_log(path):
        try:
            result = Result.model_validate(record)
        except ValidationError as error:
            raise corrupt_line_error(path, number, str(error.errors()[0]["msg"])) from error
        results[result.item] = result
    return results


def cell_is_finished(folder: Path, items: Sequence[Item]) -> bool:
    """Whether the cell is complete: a cell that has played all instructions is trained."""
    results = read_results(folder)
    return all(item.id in results for item in items)


def _numbers(option: str, parts: Sequence[str], text: str) -> list[int]:
    try:
        numbers = [int(part.strip().replace("_", "")) for part in parts]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < 1:
        raise UsageError(f"{option} takes whole numbers above 0, comma-separated; got {text!r}")
    return numbers
