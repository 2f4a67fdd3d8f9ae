"""Validates the problems and rules that a command line selects for a team."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from pydantic import Field, ValidationError

from loopline.agents.records import JsonObject, Record
from loopline.bench.benchmark import options_of
from loopline.bench.datasets import Item, Request, sample
from loopline.bench.errors import UsageError
from loopline.bench.teams.sampling import MAX_ATTEMPTS, MAX_RUNS
from loopline.trainers.data.json_files import Reading, Skipped

S = TypeVar("S", bound=Record)


class Identified(Protocol):
    """A problem with an id."""

    @property
    def id(self) -> str: ...


P = TypeVar("P", bound=Identified)


class TeamChoice(Record):
    """`Request.choices` for the data sets `code` and `math`."""

    dataset: str
    setting: JsonObject = Field(default_factory=dict)
    """How a problem is played: `turns`, …"""
    attempts: int = Field(default=1, ge=1, le=MAX_ATTEMPTS)
    """Attempts at each problem."""
    unsafe_exec: bool = False
    """Whether the bench's own judge may run programs without bubblewrap."""


def parse_choice(request: Request, datasets: Sequence[str]) -> TeamChoice:
    """Validate the choices. Raises UsageError that names the option."""
    choice = options_of(TeamChoice, request.choices)
    if choice.dataset not in datasets:
        raise UsageError(
            f"--dataset: there is no {choice.dataset!r} here; there are: {', '.join(datasets)}"
        )
    return choice


def setting_of(model: type[S], choice: TeamChoice) -> S:
    """Return the setting, with its defaults. Raises UsageError."""
    if "team" in choice.setting:
        raise UsageError("--setting team: choose the players with --arms")
    try:
        return model.model_validate(choice.setting)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise UsageError(
            f"--setting {where}: {first['msg']}; a setting is one of: "
            f"{', '.join(name for name in model.model_fields if name != 'team')}"
        ) from error


def by_id(reading: Reading[P]) -> tuple[dict[str, P], tuple[Skipped, ...]]:
    """Return problems by id, and the skipped records, which include every problem whose id repeats
    an earlier one."""
    problems_by_id: dict[str, P] = {}
    repeats: list[Skipped] = []
    for record in reading.records:
        if record.id in problems_by_id:
            repeats.append(Skipped(record.id, "a duplicate problem"))
        else:
            problems_by_id[record.id] = record
    return problems_by_id, (*reading.skipped, *repeats)


def require_split(name: str, split: str, splits: Sequence[str]) -> None:
    """Check a split. Raises UsageError that lists the available splits."""
    if split not in splits:
        raise UsageError(f"--split: {name} has no {split!r}; it has: {', '.join(splits)}")


def draw_names(names: Sequence[str], request: Request, choice: TeamChoice) -> list[str]:
    """Draw the ids of the problems to ask. Raises UsageError."""
    items = [Item(id=name, question="", gold="") for name in names]
    ids = [item.id for item in sample(items, request.samples, request.seed)]
    if len(ids) * choice.attempts > MAX_RUNS:
        raise UsageError(
            f"{len(ids):,} problems with {choice.attempts} attempts are more than {MAX_RUNS:,} "
            "runs; lower --samples or --attempts"
        )
    return ids


def repeat_item(item: Item, attempts: int) -> list[Item]:
    """Return one item per attempt, in sequence, so that a run that stops early has complete
    instances."""
    if attempts == 1:
        return [item]
    return [
        Item(f"{item.id}#{attempt}", item.question, item.gold, item.about)
        for attempt in range(1, attempts + 1)
    ]


def source_files_note(files: Sequence[str]) -> str:
    """Describe the files that a source's problems come from, if a reader accepts several forms."""
    if not files:
        return ""
    first = ", ".join(files[:2])
    return f", from {first}" if len(files) < 3 else f", from {len(files)} files ({files[0]} …)"
