"""The table: success and effective sample size by age and correction, as measured.

All seeds play the same held-out puzzles. So success is the mean over seeds, and its interval
resamples puzzles, each with all seeds' outcomes. With one seed, the interval is Wilson's.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from loopline.agents.records import Record
from loopline.bench.errors import OutputError
from loopline.bench.experiments.staleness.cells import (
    Cell,
    CellResult,
    Correction,
    StalenessSettings,
    read_result,
)
from loopline.bench.statistics import bootstrap_difference, mean_share, shares_of_seeds, wilson
from loopline.trainers.grpo.arms.results import ArmResult
from loopline.trainers.grpo.arms.results import read_result as read_arm

Bounds = tuple[float, float, float]
"""Estimate, lower and upper bound."""


class CellFigures(Record):
    """One age with one correction, over all seeds."""

    age: int
    correction: Correction
    solved: int
    """Solved puzzles, summed over seeds."""
    questions: int
    """Puzzles times seeds."""
    success: Bounds
    """Mean over seeds, with its 95 % interval over puzzles."""
    effective_samples: Bounds | None
    """Mean over updates that learned from samples of the full age, with its 95 % bootstrap
    interval; None without such updates."""
    clipped: float
    gain: Bounds
    """Gain of the mean over seeds from the warm start, paired over puzzles, with its 95 % bootstrap
    interval."""
    stopped: tuple[str, ...]
    """Reasons why trainings ended before their last update."""


class StalenessReport(Record):
    """Figures of the whole bench."""

    settings: StalenessSettings
    warm_start: Bounds
    cells: tuple[CellFigures, ...]
    tokens: int
    cpu_minutes: float


def report_of(settings: StalenessSettings, cells: Sequence[Cell], output: Path) -> StalenessReport:
    """Build the report from the results. Raises OutputError for a cell without one."""
    warm = {cell.seed: _warm_start_result(cell, output) for cell in cells if cell.age is None}
    done: list[CellResult] = []
    by_kind: dict[tuple[int, Correction], list[CellResult]] = {}
    for cell in cells:
        if cell.age is not None:
            done.append(_result(cell, output))
            by_kind.setdefault((cell.age, cell.correction), []).append(done[-1])
    return StalenessReport(
        settings=settings,
        warm_start=_success([result.outcomes for result in warm.values()]),
        cells=tuple(_figures(*kind, cell_results, warm) for kind, cell_results in by_kind.items()),
        tokens=sum(result.tokens for result in (*warm.values(), *done)),
        cpu_minutes=round(sum(result.cpu_seconds for result in (*warm.values(), *done)) / 60, 3),
    )


def _figures(
    age: int, correction: Correction, results: Sequence[CellResult], warm: dict[int, ArmResult]
) -> CellFigures:
    outcomes = [result.outcomes for result in results]
    before = [warm[result.cell.seed].outcomes for result in results]
    gain = bootstrap_difference(shares_of_seeds(outcomes), shares_of_seeds(before))
    sizes = [size for result in results for size in result.effective_samples]
    return CellFigures(
        age=age,
        correction=correction,
        solved=sum(result.solved for result in results),
        questions=sum(map(len, outcomes)),
        success=_success(outcomes),
        effective_samples=_mean(sizes) if sizes else None,
        clipped=sum(result.clipped for result in results) / len(results),
        gain=(gain.estimate, gain.low, gain.high),
        stopped=tuple(result.stopped for result in results if result.stopped),
    )


def _success(outcomes: Sequence[str]) -> Bounds:
    if len(outcomes) == 1:
        interval = wilson(outcomes[0].count("1"), len(outcomes[0]))
    else:
        interval = mean_share(shares_of_seeds(outcomes))
    return interval.estimate, interval.low, interval.high


def _mean(values: Sequence[float]) -> Bounds:
    """Bounds over updates. For samples of the current version, the effective sample size is exactly
    1."""
    interval = bootstrap_difference(values, [0.0] * len(values))
    return interval.estimate, interval.low, interval.high


def _result(cell: Cell, output: Path) -> CellResult:
    result = read_result(cell, output)
    if result is None:
        raise OutputError(f"{cell.folder(output)} has no result: run the command again")
    return result


def _warm_start_result(cell: Cell, output: Path) -> ArmResult:
    result = read_arm(cell.folder(output))
    if result is None:
        raise OutputError(f"{cell.folder(output)} has no result: run the command again")
    return result
