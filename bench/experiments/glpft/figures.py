"""The figures of the table, from the results of all cells.

A method's share of solved instructions is the mean over its seeds. An interval resamples seeds and
instructions together (`Bounds.of_seeds`), differences paired by both: it shows where other seeds
and other instructions would be. With one seed, it is only over instructions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from pydantic import ValidationError

from loopline.bench.errors import OutputError
from loopline.bench.experiments.glpft.evaluation import serving_of
from loopline.bench.experiments.glpft.grid import (
    APART,
    HELD_OUT,
    Cell,
    GlpftGrid,
    read_results,
    split_of,
    training_folder,
)
from loopline.bench.experiments.harness import Bounds
from loopline.bench.results import Result
from loopline.bench.statistics import Interval
from loopline.bench.tools.baselines import best_of, name_of, solved_by_players
from loopline.bench.tools.classes import class_of
from loopline.bench.tools.worlds import instance_of
from loopline.trainers.glpft.report import REPORT, Report, StageFacts

ALL = "held_out"
"""The three held-out splits together."""


@dataclass(frozen=True)
class Solved:
    """Shares of one method on one group of instructions."""

    instructions: int
    mean: Interval
    seeds: tuple[float, ...]


@dataclass(frozen=True)
class MethodFigures:
    """One method at one size, over all its seeds."""

    method: str
    models: int
    """Number of models that play."""
    parameters: int
    """Parameters of each model."""
    tokens: tuple[int, ...]
    """Tokens through the models in training, padding included, by seed."""
    training_seconds: tuple[float, ...]
    seeds: tuple[int, ...]
    solved: dict[str, Solved]
    """Solved instructions by split, and over the three held-out splits together."""
    hallucination: Interval
    """Share of runs that name a tool that is not offered."""
    calls: float
    """Tool calls per run."""
    unseen_apis_hallucination: Interval | None
    classes: dict[str, int]
    """Unsolved runs of the three held-out splits, by failure class."""


@dataclass(frozen=True)
class Difference:
    """One method minus another, instruction by instruction."""

    first: str
    second: str
    solved: dict[str, Interval]


@dataclass(frozen=True)
class SizeFigures:
    """The table of one size."""

    size: str
    budget: int
    """Tokens of each cell."""
    methods: tuple[MethodFigures, ...]
    differences: tuple[Difference, ...]
    baselines: dict[str, dict[str, float]]
    """Shares by split, and over the three held-out splits together, for players that never read the
    instruction: the best one with the oracle's calls, and the best of the others."""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def figures_of(grid: GlpftGrid) -> tuple[SizeFigures, ...]:
    """Figures of all sizes; every cell must be finished."""
    baselines = _baselines(grid)
    return tuple(_size(grid, size, baselines) for size in grid.sizes)


@dataclass(frozen=True)
class _Played:
    """Results of one method by seed and item."""

    facts: MethodFigures
    by_seed: tuple[dict[str, Result], ...]


def _baselines(grid: GlpftGrid) -> dict[str, dict[str, float]]:
    instances = {item.id: instance_of(item) for item in grid.items}
    groups = _groups(grid)
    solved = {
        name: solved_by_players(instances[item] for item in items) for name, items in groups.items()
    }
    best = [best_of(solved[ALL], is_given=is_given) for is_given in (True, False)]
    return {
        name_of(player): {name: solved[name][player] / len(items) for name, items in groups.items()}
        for player in best
    }


def _size(grid: GlpftGrid, size: str, baselines: dict[str, dict[str, float]]) -> SizeFigures:
    groups = _groups(grid)
    _require_same_training(grid, size)
    played = {
        method: _read_played(
            grid,
            [entry for entry in grid.cells if (entry.size, entry.method) == (size, method)],
            groups,
        )
        for method in grid.methods
    }
    differences: list[Difference] = []
    if "glpft" in played:
        differences = [
            _difference(groups, played["glpft"], results)
            for name, results in played.items()
            if name != "glpft"
        ]
    return SizeFigures(
        size=size,
        budget=grid.sizes[size].tokens,
        methods=tuple(entry.facts for entry in played.values()),
        differences=tuple(differences),
        baselines=baselines,
    )


def _groups(grid: GlpftGrid) -> dict[str, list[str]]:
    """Return the items by group: the three splits together, each split, and unseen APIs."""
    groups: dict[str, list[str]] = {name: [] for name in (ALL, *HELD_OUT, APART)}
    for item in grid.items:
        split = split_of(item)
        groups[split].append(item.id)
        if split != APART:
            groups[ALL].append(item.id)
    return {name: items for name, items in groups.items() if items}


def _read_played(grid: GlpftGrid, cells: Sequence[Cell], groups: dict[str, list[str]]) -> _Played:
    by_seed = tuple(read_results(cell.folder(grid.output)) for cell in cells)
    reports = [_report(cell.folder(grid.output)) for cell in cells]
    playing = _playing_stages(cells[0], reports[0])
    apart = groups.get(APART)
    facts = MethodFigures(
        method=cells[0].method,
        models=len(playing),
        parameters=playing[0].parameters,
        tokens=tuple(report.tokens for report in reports),
        training_seconds=tuple(report.seconds for report in reports),
        seeds=tuple(cell.seed for cell in cells),
        solved={
            name: Solved(
                instructions=len(items),
                mean=_mean(by_seed, items, _solved_value),
                seeds=tuple(
                    fmean(_solved_value(seed_results[item]) for item in items)
                    for seed_results in by_seed
                ),
            )
            for name, items in groups.items()
        },
        hallucination=_mean(by_seed, groups[ALL], _invented_value),
        calls=fmean(
            seed_results[item].measures["calls"] for seed_results in by_seed for item in groups[ALL]
        ),
        unseen_apis_hallucination=(_mean(by_seed, apart, _invented_value) if apart else None),
        classes=_classes(by_seed, groups[ALL]),
    )
    return _Played(facts, by_seed)


def _report(folder: Path) -> Report:
    path = training_folder(folder) / REPORT
    try:
        return Report.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        why = str(error).splitlines()[0]
        raise OutputError(
            f"{path} cannot be read ({why}); remove {folder}, and run the same command to repeat "
            "the cell"
        ) from error


def _require_same_training(grid: GlpftGrid, size: str) -> None:
    """Check the cells. Raises `OutputError` if cells were trained in different ways: this release
    may have other defaults than the release that created the folder."""
    cells_by_settings: dict[str, str] = {}
    for cell in grid.cells:
        if cell.size == size:
            settings = _report(cell.folder(grid.output)).settings
            cells_by_settings[settings.model_dump_json(exclude={"method", "seed"})] = cell.name
    if len(cells_by_settings) > 1:
        raise OutputError(
            f"{' and '.join(cells_by_settings.values())} were trained with different settings (see "
            f"training/settings.json of each), so they cannot be compared; remove the older cells "
            f"of {grid.output}, and run the same command to repeat them"
        )


def _playing_stages(cell: Cell, report: Report) -> list[StageFacts]:
    """Return the models that play; models of other stages are only starting points."""
    stage_names = serving_of(cell.method)[1].values()
    return [stage for stage in report.stages if stage.stage in stage_names]


def _difference(groups: dict[str, list[str]], first: _Played, second: _Played) -> Difference:
    return Difference(
        first=first.facts.method,
        second=second.facts.method,
        solved={
            name: Bounds.of_seeds(
                [
                    [_solved_value(left[item]) - _solved_value(right[item]) for item in items]
                    for left, right in zip(first.by_seed, second.by_seed, strict=True)
                ],
                least=-1.0,
            ).interval
            for name, items in groups.items()
        },
    )


def _mean(
    by_seed: Sequence[dict[str, Result]], items: Sequence[str], value: Callable[[Result], float]
) -> Interval:
    cells = [[value(seed_results[item]) for item in items] for seed_results in by_seed]
    return Bounds.of_seeds(cells, least=0.0).interval


def _solved_value(result: Result) -> float:
    return float(result.right)


def _invented_value(result: Result) -> float:
    return result.measures["hallucination"]


def _classes(by_seed: Sequence[dict[str, Result]], items: Sequence[str]) -> dict[str, int]:
    counts = Counter(
        str(
            class_of(
                seed_results[item].outcome, seed_results[item].right, seed_results[item].signals
            )
        )
        for seed_results in by_seed
        for item in items
        if not seed_results[item].right
    )
    return dict(counts.most_common())
