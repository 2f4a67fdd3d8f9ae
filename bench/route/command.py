"""The measurement of `bench route`: from labelled answers to a report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from threadpoolctl import threadpool_limits

from loopline.agents.equations import first_wrong
from loopline.agents.router.features import clip
from loopline.agents.router.guarantee import allowed_errors
from loopline.bench.errors import UsageError
from loopline.bench.route.comparison import compare
from loopline.bench.route.report import RouteReport, Signal
from loopline.bench.route.splits import (
    CALIBRATION,
    ENTROPY,
    LOGPROB,
    TRAIN,
    Splits,
    play_splits,
)
from loopline.trainers.router.fitting import Floats, area_under_curve
from loopline.trainers.router.labelled import Labelled, read_labelled, require_enough, thinned
from loopline.trainers.router.policy import SIGNAL, Table
from loopline.trainers.router.recorded import read_recorded
from loopline.trainers.router.training import question_numbers
from loopline.workers.sandbox.limits import cores

if TYPE_CHECKING:
    from loopline.bench.commands.options import RouteOptions

LEAST_MEASURED = 10
"""Minimum number of questions; with fewer, a part would be empty. Slightly above this minimum, the
verdict is that there are too few questions."""
MOST_THREADS = 4
_NOTHING = -50.0
"""Score of an answer without any evidence that it is right."""


def measure(options: RouteOptions) -> RouteReport:
    """Measure a router. Raises UsageError, or BadLabels that names each bad line."""
    rows, where, notes = _read(options)
    require_enough(rows, LEAST_MEASURED, where)
    rows = thinned(rows, options.seed, notes)
    table = Table.of(rows).prepared()
    doubts = _doubts(table)
    console = Console(stderr=True)
    columns = (TextColumn("splits"), BarColumn(), MofNCompleteColumn())
    bar = Progress(*columns, console=console, disable=not console.is_terminal, transient=True)
    task = bar.add_task("splits", total=options.splits)
    # Each split uses one thread: with a thread per core, such small matrices wait more than they
    # compute.
    with threadpool_limits(1, user_api="blas"), bar:
        splits = play_splits(
            table,
            question_numbers(rows),
            splits=options.splits,
            alpha=options.alpha,
            delta=options.delta,
            seed=options.seed,
            checked=_passes_ladder(rows, table),
            doubts=doubts,
            threads=min(MOST_THREADS, cores()),
            progress=lambda done: bar.update(task, completed=done),
        )
        comparison = compare(splits, options.seed)
    count = len(rows)
    test = count - round((TRAIN + CALIBRATION) * count)
    calibration = round((TRAIN + CALIBRATION) * count) - round(TRAIN * count)
    return RouteReport(
        questions=count,
        source="; ".join(notes),
        estimated_costs=sum(row.estimated for row in rows),
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
        sampling_share=splits.sampling / splits.splits,
        signal=_signal(splits, table),
        has_logprobs=LOGPROB in doubts,
        has_samples=ENTROPY in doubts,
        comparison=comparison,
    )


def _read(options: RouteOptions) -> tuple[list[Labelled], str, list[str]]:
    """Return the labelled answers, their location, and a note about them."""
    if (options.labelled is None) == (options.from_store is None):
        raise UsageError("give either --labelled FILE or --from-store FOLDER")
    if options.from_store is not None:
        recorded = read_recorded(options.from_store, options.small_prices, options.big_prices)
        if len(recorded.rows) < LEAST_MEASURED:
            raise UsageError(
                f"{options.from_store}: {recorded.summary}; at least {LEAST_MEASURED} are needed: "
                "ask with --workflow cascade --option audit=0.1"
            )
        return recorded.rows, str(options.from_store), [recorded.summary]
    assert options.labelled is not None
    notes: list[str] = []
    rows = read_labelled(options.labelled, options.small_prices, options.big_prices, notes)
    return rows, str(options.labelled), notes


def _signal(splits: Splits, table: Table) -> Signal:
    tested = splits.tested > 0
    scores = splits.scores[tested] / splits.tested[tested]
    area, error = area_under_curve(scores, table.right[tested, 0] > 0)
    low = max(0.0, area - SIGNAL * error) if np.isfinite(error) else 0.0
    high = min(1.0, area + SIGNAL * error) if np.isfinite(error) else 1.0
    return Signal(auc=area, low=low, high=high, significant=low > 0.5)


def _column(table: Table, name: str) -> Floats:
    return table.answers.numeric[:, table.answers.names.index(name)]


def _passes_ladder(rows: Sequence[Labelled], table: Table) -> Floats:
    """Return 1 where the answer has a number and every equation is correct: the ladder without any
    learning."""
    stated = _column(table, "answer.present") > 0
    holds = [first_wrong(clip(row.evidence.text)) is None for row in rows]
    return (stated & np.array(holds)).astype(np.float64)


def _doubts(table: Table) -> dict[str, Floats]:
    """Return the scores of the baselines that need no learning, if the labels have their inputs:
    the mean log-probability of the answer's tokens, and the negative entropy of the samples."""
    doubts: dict[str, Floats] = {}
    unknown = _column(table, "logprob.absent") > 0
    if not unknown.all():
        doubts[LOGPROB] = np.where(unknown, _NOTHING, _column(table, "logprob.mean"))
    unknown = _column(table, "agreement.absent") > 0
    if not unknown.all():
        doubts[ENTROPY] = np.where(unknown, _NOTHING, -_column(table, "agreement.entropy"))
    return doubts
