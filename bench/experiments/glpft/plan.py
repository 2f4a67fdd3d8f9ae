"""What is asked of the bench, and where it is kept.

    OUTPUT/settings.json                         what every cell follows from
    OUTPUT/data/                                 the training instructions
    OUTPUT/cells/<size>/settings.json            the size and its compute
    OUTPUT/cells/<size>/<method>-<seed>/
        training/                                as `train glpft` writes it
        results.jsonl                            a line for each run that was played
    OUTPUT/report.md, report.json

Further sizes, seeds and methods may be asked of the same folder; what is there is not done again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pydantic import BaseModel, Field, ValidationError

from loopline.agents.environments.api_worlds import Split
from loopline.agents.records import JsonObject, Record
from loopline.bench.append_log import corrupt, read_log
from loopline.bench.datasets import Item
from loopline.bench.errors import OutputError, UsageError
from loopline.bench.results import Result
from loopline.bench.tools import worlds
from loopline.trainers.core.checkpoints import changed_settings
from loopline.trainers.core.json_records import write_record
from loopline.trainers.glpft.settings import MICRO, SIZES, Size
from loopline.trainers.glpft.stages import METHODS, Method

SETTINGS = "settings.json"
HELD_OUT = (Split.UNSEEN_WORLDS, Split.UNSEEN_WORDINGS, Split.UNSEEN_COMBINATIONS)
APART = Split.UNSEEN_APIS
OPTIONS: JsonObject = {"calculator": False, "constrained": True, "tool_style": "signatures"}
"""Of the workflows: as `bench tools` has them, in the form that the models were trained on."""


def schedules_sha256() -> str:
    """Of what `train glpft` trains random weights by."""
    table = {name: each.model_dump() for name, each in MICRO.items()}
    return hashlib.sha256(json.dumps(table, sort_keys=True).encode()).hexdigest()


class Common(Record):
    """What every cell follows from."""

    instructions: int = Field(ge=1)
    """That are trained on."""
    data_seed: int
    samples: int = Field(ge=len(HELD_OUT), le=worlds.MAX_SAMPLES)
    """Held-out instructions, of the three splits alike."""
    unseen_apis: int = Field(ge=0, le=worlds.MAX_SAMPLES)
    """Further ones that need APIs which training never sees."""
    question_seed: int
    schedules: str = Field(default_factory=schedules_sha256)
    """Of the table of learning rates: another one trains other cells."""


class SizePlan(Record):
    """One size."""

    size: Size
    tokens: int = Field(ge=1)
    """Compute of each cell, padding included."""


class Cell(Record):
    """One method at one size with one seed."""

    size: str
    method: Method
    seed: int
    plan: SizePlan

    @property
    def name(self) -> str:
        return f"{self.size} {self.method} {self.seed}"

    def folder(self, output: Path) -> Path:
        return output / "cells" / self.size / f"{self.method}-{self.seed}"

    def beside(self, output: Path) -> list[Path]:
        """The folders of the other methods at this size, with this seed."""
        others = [self.model_copy(update={"method": each}) for each in METHODS]
        return [other.folder(output) for other in others if other != self]


@dataclass(frozen=True)
class Plan:
    """Everything that is asked of one command."""

    output: Path
    common: Common
    sizes: dict[str, SizePlan]
    methods: tuple[Method, ...]
    seeds: tuple[int, ...]
    jobs: int

    @property
    def cells(self) -> list[Cell]:
        """In the order of work: seed by seed, so that what was done before a stop compares."""
        return [
            Cell(size=size, method=method, seed=seed, plan=plan)
            for seed in self.seeds
            for method in self.methods
            for size, plan in self.sizes.items()
        ]

    @cached_property
    def items(self) -> tuple[Item, ...]:
        return items_of(self.common)

    def claim(self) -> None:
        """Make the folder this bench's own. Raises `OutputError` for one that was begun with other
        settings, or holds something else."""
        output, path = self.output, self.output / SETTINGS
        if not path.exists() and output.exists() and any(_visible(output)):
            raise OutputError(f"{output} holds something else; name another folder")
        _claim(path, self.common)
        for name, size in self.sizes.items():
            _claim(output / "cells" / name / SETTINGS, size)


def plan_of(
    output: Path,
    *,
    sizes: str,
    seeds: str,
    methods: str,
    tokens: str,
    common: Common,
    jobs: int,
) -> Plan:
    """From the options as they are typed. Raises `UsageError`."""
    names = _listed("--sizes", sizes, SIZES)
    budgets = _numbers("--tokens", tokens)
    if len(budgets) not in (1, len(names)):
        raise UsageError(
            f"--tokens takes one number, or one for each of the {len(names)} sizes; got {tokens!r}"
        )
    if len(budgets) == 1:
        budgets *= len(names)
    chosen = _listed("--methods", methods, METHODS)
    return Plan(
        output=output,
        common=common,
        sizes={
            name: SizePlan(size=SIZES[name], tokens=budget)
            for name, budget in zip(names, budgets, strict=True)
        },
        methods=tuple(known for name in chosen for known in METHODS if known == name),
        seeds=tuple(_numbers("--seeds", seeds)),
        jobs=jobs,
    )


def items_of(common: Common) -> tuple[Item, ...]:
    """The held-out instructions, the splits in turn, those with unseen APIs last."""
    return (
        *worlds.items_in_turn(HELD_OUT, common.samples, common.question_seed),
        *worlds.items_in_turn((APART,), common.unseen_apis, common.question_seed),
    )


def split_of(item: Item) -> str:
    """The split of the simulator that an instruction is of."""
    return str(item.about["split"])


def data_folder(output: Path) -> Path:
    """Of the training instructions."""
    return output / "data"


def training_folder(folder: Path) -> Path:
    """Of a cell's folder."""
    return folder / "training"


def results_path(folder: Path) -> Path:
    """Of a cell's folder."""
    return folder / "results.jsonl"


def read_results(folder: Path) -> dict[str, Result]:
    """A cell's results so far, by item. Raises `OutputError` naming a damaged line."""
    path = results_path(folder)
    found: dict[str, Result] = {}
    for number, record in read_log(path):
        try:
            result = Result.model_validate(record)
        except ValidationError as error:
            raise corrupt(path, number, str(error.errors()[0]["msg"])) from error
        found[result.item] = result
    return found


def _visible(folder: Path) -> list[Path]:
    """Hidden files are of ours, from before a crash."""
    return [path for path in folder.iterdir() if not path.name.startswith(".")]


def finished(folder: Path, items: Sequence[Item]) -> bool:
    """Whether nothing of the cell is left to do: what has played everything is trained."""
    results = read_results(folder)
    return all(item.id in results for item in items)


def _claim(path: Path, wanted: BaseModel) -> None:
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_record(path, wanted)
        return
    try:
        found = type(wanted).model_validate_json(path.read_bytes())
    except ValidationError as error:
        why = error.errors()[0]["msg"]
        raise OutputError(f"{path} is damaged ({why}); name another folder") from error
    changed = changed_settings(found.model_dump(), wanted.model_dump())
    if changed:
        raise OutputError(
            f"{path.parent} was begun with other settings: {', '.join(changed)}; use the same "
            "ones, or name another folder"
        )


def _listed(option: str, text: str, known: Sequence[str] | dict[str, Size]) -> list[str]:
    names = _parts(option, text)
    for name in names:
        if name not in known:
            raise UsageError(f"{option}: there is no {name!r}; there are: {', '.join(known)}")
    return names


def _numbers(option: str, text: str) -> list[int]:
    parts = _parts(option, text) if option == "--seeds" else text.split(",")
    try:
        found = [int(part.strip().replace("_", "")) for part in parts]
    except ValueError:
        found = []
    if not found or min(found) < 1:
        raise UsageError(f"{option} takes whole numbers above 0, comma-separated; got {text!r}")
    return found


def _parts(option: str, text: str) -> list[str]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts:
        raise UsageError(f"{option} names nothing")
    for part in parts:
        if parts.count(part) > 1:
            raise UsageError(f"{option} names {part!r} twice")
    return parts
