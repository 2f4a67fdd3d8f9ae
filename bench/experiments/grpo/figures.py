"""The figures of the table, from the results of all arms.

An arm's success is the mean over its seeds and puzzles. Its 95 % interval comes from the pigeonhole
bootstrap (`loopline.bench.statistics`), which resamples seeds and puzzles together: it shows where
the mean of other trainings on other puzzles is expected. A difference is paired by seed and puzzle,
over the seeds that both arms have. A single seed shows no spread: the training is held fixed, and
the interval is only over puzzles. If every puzzle has the same outcome with every seed, resampling
shows no spread either: the interval's width then comes from Wilson's interval for unseen puzzles.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean

from pydantic import Field

from loopline.agents.records import Record
from loopline.bench.experiments.grpo.trials import Trial
from loopline.bench.experiments.harness import Bounds, Verdict
from loopline.bench.statistics import wilson
from loopline.trainers.grpo.arms.kinds import (
    AT_GRPO,
    BEST_OF_K,
    CONTINUED,
    DAGGER,
    EXPERT_ITERATION,
    KINDS,
    MAS_GRPO,
    MAS_GRPO_TOKENS,
    PER_ROLE,
    PER_ROLE_LORA,
    PROPOSER,
    SINGLE,
    SINGLE_GRPO,
    SWAPPED,
    WARM_START,
    ArmName,
)
from loopline.trainers.grpo.arms.results import ArmResult, Point
from loopline.trainers.grpo.arms.settings import ArmSettings
from loopline.trainers.grpo.arms.tuning import Tuning

ROWS: tuple[ArmName, ...] = (
    WARM_START, CONTINUED, EXPERT_ITERATION, MAS_GRPO_TOKENS, MAS_GRPO, AT_GRPO, PROPOSER,
    BEST_OF_K, SINGLE, SINGLE_GRPO, PER_ROLE, PER_ROLE_LORA, SWAPPED, DAGGER,
)  # fmt: skip
"""Arms in the order of table rows."""
CLAIMS: tuple[tuple[ArmName, ArmName], ...] = (
    (CONTINUED, WARM_START), (EXPERT_ITERATION, CONTINUED), (MAS_GRPO, CONTINUED),
    (AT_GRPO, CONTINUED), (AT_GRPO, EXPERT_ITERATION), (AT_GRPO, MAS_GRPO_TOKENS),
    (AT_GRPO, MAS_GRPO), (AT_GRPO, PROPOSER), (AT_GRPO, BEST_OF_K), (SINGLE_GRPO, SINGLE),
    (AT_GRPO, SINGLE_GRPO), (PER_ROLE, MAS_GRPO), (PER_ROLE, AT_GRPO), (PER_ROLE_LORA, PER_ROLE),
    (PER_ROLE, SWAPPED),
)  # fmt: skip
"""Pairs of arms to compare, first minus second. Each pair was chosen before its result existed."""


class CurvePoint(Record):
    """One look at an arm during training, over all seeds."""

    samples: float
    tokens: float
    success: float
    low: float
    """Bounds of the interval over seeds: `low` and `high`."""
    high: float


class ArmFigures(Record):
    """One arm over all its seeds. Means are over seeds."""

    arm: ArmName
    tuning: Tuning
    success: Bounds
    by_seed: dict[int, Bounds]
    gain: Bounds | None
    """Paired gain over the warm start; None for the warm start itself, or if no seed has both."""
    samples: float
    """Completions sampled, or answers imitated, since the start of training."""
    tokens: float
    """Tokens through the model since the start of training, padding included."""
    steps: float
    train_cpu_minutes: float
    agreement: float | None
    """Share of proposals that the plan agent executed unchanged; None without proposals."""
    failures: dict[str, int]
    """Failures by kind, over all seeds."""
    answers: dict[str, dict[str, int]]
    """Most frequent answers with the first seed, by agent."""
    curve: tuple[CurvePoint, ...]


class Difference(Record):
    """One arm minus another, paired by seed and puzzle, over the seeds that both have."""

    first: ArmName
    second: ArmName
    gap: Bounds
    by_seed: dict[int, float]
    verdict: Verdict


class GrpoReport(Record):
    """Figures of the whole table."""

    settings: ArmSettings
    arms: tuple[ArmFigures, ...]
    differences: tuple[Difference, ...]
    baselines: dict[str, Bounds]
    """Hand-written players on the same puzzles, with Wilson's interval."""
    trials: tuple[Trial, ...] = ()
    """Trials by which each arm's tuning was chosen; empty if the game's own tuning is used."""
    stopped: dict[str, str] = Field(default_factory=dict)
    """Reasons of trainings that ended early, by name."""
    published: str
    minutes: float
    """Wall-clock minutes, over all parts of an interrupted run."""
    cpu_minutes: float
    """CPU minutes of all processes: training, looks and measurement, including trials."""


def report_of(
    settings: ArmSettings,
    results: Sequence[ArmResult],
    baselines: Mapping[str, int],
    published: str,
    minutes: float,
    *,
    cpu_minutes: float,
    trials: tuple[Trial, ...] = (),
    stopped: Mapping[str, str] | None = None,
) -> GrpoReport:
    """Build the report from the results of all arms and seeds, with seeds in the order of the
    settings."""
    order = {seed: at for at, seed in enumerate(settings.seeds)}
    by_arm: dict[ArmName, list[ArmResult]] = {}
    for name in ROWS:
        arm_results = sorted(
            (result for result in results if result.arm == name),
            key=lambda result: order[result.seed],
        )
        if arm_results:
            by_arm[name] = arm_results
    return GrpoReport(
        settings=settings,
        arms=tuple(
            _arm(name, arm_results, by_arm.get(WARM_START, ()))
            for name, arm_results in by_arm.items()
        ),
        differences=tuple(
            _difference(pairs)
            for first, second in CLAIMS
            if (pairs := _pairs(by_arm.get(first, ()), by_arm.get(second, ())))
        ),
        baselines={
            name: Bounds.of(wilson(solved, settings.held_out)) for name, solved in baselines.items()
        },
        trials=trials,
        stopped=dict(stopped or {}),
        published=published,
        minutes=round(minutes, 2),
        cpu_minutes=round(cpu_minutes, 2),
    )


def solved_at_equal_tokens(arms: Sequence[ArmFigures]) -> dict[ArmName, float]:
    """Return, for arms that learn from rewards, the solved share of the validation split at the
    first look after AT-GRPO's final number of tokens, or at the last look; empty without
    AT-GRPO."""
    whole = next((arm.tokens for arm in arms if arm.arm == AT_GRPO), None)
    if whole is None:
        return {}
    success_by_arm: dict[ArmName, float] = {}
    for arm in arms:
        if KINDS[arm.arm].way == "reinforced":
            later = (point.success for point in arm.curve if point.tokens >= whole)
            success_by_arm[arm.arm] = next(later, arm.curve[-1].success)
    return success_by_arm


def _arm(name: ArmName, results: Sequence[ArmResult], warm: Sequence[ArmResult]) -> ArmFigures:
    def mean(value: Callable[[ArmResult], float]) -> float:
        return fmean(map(value, results))

    failures: Counter[str] = Counter()
    for result in results:
        failures.update(result.failures)
    agreement = [result.agreement for result in results if result.agreement is not None]
    warm_pairs = _pairs(results, warm) if name != WARM_START else []
    return ArmFigures(
        arm=name,
        tuning=results[0].tuning,
        success=Bounds.of_seeds([_solved_by_puzzle(result) for result in results], least=0.0),
        by_seed={
            result.seed: Bounds.of(wilson(result.solved, len(result.outcomes)))
            for result in results
        },
        gain=_gap(warm_pairs) if warm_pairs else None,
        samples=mean(lambda result: result.samples),
        tokens=mean(lambda result: result.tokens),
        steps=mean(lambda result: result.steps),
        train_cpu_minutes=mean(lambda result: result.train_cpu_seconds) / 60,
        agreement=fmean(agreement) if agreement else None,
        failures=dict(failures.most_common()),
        answers=results[0].answers,
        curve=_curve([result.curve for result in results]),
    )


def _pairs(
    first: Sequence[ArmResult], second: Sequence[ArmResult]
) -> list[tuple[ArmResult, ArmResult]]:
    """Pair the results of the seeds that both arms have."""
    others = {result.seed: result for result in second}
    return [(result, others[result.seed]) for result in first if result.seed in others]


def _difference(pairs: Sequence[tuple[ArmResult, ArmResult]]) -> Difference:
    gap = _gap(pairs)
    return Difference(
        first=pairs[0][0].arm,
        second=pairs[0][1].arm,
        gap=gap,
        by_seed={a.seed: a.success - b.success for a, b in pairs},
        verdict=gap.verdict,
    )


def _gap(pairs: Sequence[tuple[ArmResult, ArmResult]]) -> Bounds:
    """Return first minus second, paired by seed and puzzle."""
    return Bounds.of_seeds(
        [
            [
                value - baseline
                for value, baseline in zip(_solved_by_puzzle(a), _solved_by_puzzle(b), strict=True)
            ]
            for a, b in pairs
        ],
        least=-1.0,
    )


def _solved_by_puzzle(result: ArmResult) -> list[float]:
    """Success per puzzle: 1 if solved, else 0."""
    return [float(mark == "1") for mark in result.outcomes]


def _curve(curves: Sequence[Sequence[Point]]) -> tuple[CurvePoint, ...]:
    """Align the looks of all seeds. A seed that ended early, or had few steps and therefore fewer
    looks, keeps its last look."""
    most = max(map(len, curves), default=0)
    whole = [[*curve, *[curve[-1]] * (most - len(curve))] for curve in curves if curve]
    return tuple(
        CurvePoint(
            samples=fmean(point.samples for point in points),
            tokens=fmean(point.tokens for point in points),
            success=fmean(point.success for point in points),
            low=min(point.success for point in points),
            high=max(point.success for point in points),
        )
        for points in zip(*whole, strict=True)
    )
