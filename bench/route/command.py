"""The measurement of `bench route`: from labelled answers to a report."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from threadpoolctl import threadpool_limits

from loopline.agents.router.guarantee import allowed_errors
from loopline.bench.errors import UsageError
from loopline.bench.route.comparison import compare
from loopline.bench.route.report import RouteReport, Signal
from loopline.bench.route.splits import CALIBRATION, TRAIN, Splits, play_splits
from loopline.trainers.router.fitting import Floats, area_under_curve
from loopline.trainers.router.labelled import Labelled, read_labelled, require_enough
from loopline.trainers.router.policy import LEAST_QUESTIONS, SIGNAL, Table
from loopline.trainers.router.recorded import read_recorded

if TYPE_CHECKING:
    from loopline.bench.commands.options import RouteOptions


def measure(options: RouteOptions) -> RouteReport:
    """Raises UsageError, or BadLabels that names each bad line."""
    rows, where, source = _read(options)
    require_enough(rows, LEAST_QUESTIONS, where)
    table = Table.of(rows)
    console = Console(stderr=True)
    columns = (TextColumn("splits"), BarColumn(), MofNCompleteColumn())
    bar = Progress(*columns, console=console, disable=not console.is_terminal, transient=True)
    task = bar.add_task("splits", total=options.splits)
    # With a thread for each core, such small matrices wait more than they compute.
    with threadpool_limits(1, user_api="blas"), bar:
        splits = play_splits(
            table,
            splits=options.splits,
            alpha=options.alpha,
            delta=options.delta,
            seed=options.seed,
            checked=_passes_ladder(table),
            logprob=_mean_logprob(table),
            progress=lambda done: bar.update(task, completed=done),
        )
        comparison = compare(splits, options.seed)
    count = len(rows)
    test = count - round((TRAIN + CALIBRATION) * count)
    calibration = round((TRAIN + CALIBRATION) * count) - round(TRAIN * count)
    return RouteReport(
        questions=count,
        source=source,
        alpha=options.alpha,
        delta=options.delta,
        splits=options.splits,
        delta_of_a_split=splits.delta_of_a_split,
        calibration=calibration,
        test=test,
        allowed_errors=allowed_errors(calibration, options.alpha, splits.delta_of_a_split, test),
        risk_held_share=splits.within_bound / splits.splits,
        mean_risk=float(np.mean(splits.risks)),
        greatest_risk=float(np.max(splits.risks)),
        accepted_share=float(np.mean(splits.accepted)),
        paying_share=splits.paying / splits.splits,
        signal=_signal(splits, table),
        has_logprobs=_mean_logprob(table) is not None,
        has_samples=bool((_column(table, "agreement.absent") == 0).any()),
        comparison=comparison,
    )


def _read(options: RouteOptions) -> tuple[list[Labelled], str, str]:
    """The labelled answers, where they are, and what there is to say of them."""
    if (options.labelled is None) == (options.from_store is None):
        raise UsageError("give --labelled FILE or --from-store FOLDER, one of them")
    if options.from_store is not None:
        recorded = read_recorded(options.from_store, options.small_prices, options.big_prices)
        return recorded.rows, str(options.from_store), recorded.summary
    assert options.labelled is not None
    rows = read_labelled(options.labelled, options.small_prices, options.big_prices)
    return rows, str(options.labelled), ""


def _signal(splits: Splits, table: Table) -> Signal:
    tested = splits.tested > 0
    scores = splits.scores[tested] / splits.tested[tested]
    area, error = area_under_curve(scores, table.right[tested, 0] > 0)
    low = max(0.0, area - SIGNAL * error) if np.isfinite(error) else 0.0
    high = min(1.0, area + SIGNAL * error) if np.isfinite(error) else 1.0
    return Signal(auc=area, low=low, high=high, significant=low > 0.5)


def _column(table: Table, name: str) -> Floats:
    return table.answers.numeric[:, table.answers.names.index(name)]


def _passes_ladder(table: Table) -> Floats:
    """1 where there is a number to answer with and every equation holds: the ladder without
    anything learned."""
    stated = _column(table, "answer.present") > 0
    holds = _column(table, "answer.wrong_steps") + _column(table, "answer.wrong_equations") == 0
    return (stated & holds).astype(np.float64)


def _mean_logprob(table: Table) -> Floats | None:
    absent = _column(table, "logprob.absent")
    if absent.all():
        return None
    return np.where(absent > 0, -50.0, _column(table, "logprob.mean"))
