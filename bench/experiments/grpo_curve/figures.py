"""The figures of the curves, and the verdict. The rules were chosen before any curve existed; the
way of measuring, the learning rate and the number of undisturbed loops were chosen after a first
curve (`looks`).

**Within the spread.** At every look, the attacked loop is compared with all undisturbed ones. If it
solves no fewer than the worst and no more than the best of them, it is within the spread. Otherwise
it is compared with the nearest of them, puzzle by puzzle, by McNemar's exact test: it is outside
only if p < 5 % divided by the number of looks (Bonferroni). So chance among the puzzles puts a look
outside in at most 5 of 100 curves.

Few seeds can't show how far another seed may differ from them. So an attacked loop is the twin of
an undisturbed one (`loops.CurveLoop`), and differs from it in little but the attack. The same rule
is also applied to every undisturbed loop against the others, to show how often it flags a loop
without attacks. The resolution of a look is the smallest difference that its test would find in
four of five cases.

**Rises.** At the last look, every loop solves more than the warm start: the 95 % interval of the
difference, paired over puzzles, is above zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Literal

from loopline.agents.records import Record
from loopline.bench.experiments.grpo_curve.loops import CurveLoop, LoopHistory, LoopResult
from loopline.bench.experiments.grpo_curve.settings import CurveSettings
from loopline.bench.experiments.harness import Bounds
from loopline.bench.statistics import (
    detectable_difference,
    mcnemar_exact,
    paired_table,
    wilson,
)

ALPHA = 0.05
"""Error probability of a whole curve, shared equally by its looks."""
Place = Literal["within", "below", "above"]


class LookComparison(Record):
    """A look of one loop, compared with the same look of other loops."""

    round: int
    least: float
    """Lowest of the other loops' shares of held-out puzzles."""
    greatest: float
    p: float
    """p-value of the difference from the nearest other loop; 1 if the share lies between them."""
    discordant: float
    """Share of the puzzles on which the loop and the nearest other one differ."""
    place: Place


class CurveFigures(Record):
    """Figures of one loop."""

    loop: CurveLoop
    looks: dict[int, Bounds]
    """Solved share by round, with Wilson's interval; round 0 is the warm start."""
    gain: Bounds
    """Gain from the warm start to the last look, paired over puzzles."""
    against_undisturbed: tuple[LookComparison, ...]
    """Comparisons with the undisturbed loops, one per look; an undisturbed loop is compared with
    the other undisturbed ones. Empty if there are none."""
    over_twin: Bounds | None
    """Last look minus that of the undisturbed loop with the same seed, paired; None for an
    undisturbed loop."""
    history: LoopHistory

    @property
    def within(self) -> bool:
        return all(look.place == "within" for look in self.against_undisturbed)

    @property
    def rises(self) -> bool:
        return self.gain.low > 0


class CurveReport(Record):
    """Figures and verdicts of all loops."""

    settings: CurveSettings
    loops: tuple[CurveFigures, ...]
    alpha: float
    """Error probability of one look."""
    detectable: float | None
    """Difference from the nearest undisturbed loop that a look would have detected with a
    probability of 80 %, at the observed discordance; None if none would be."""
    within: bool
    """Whether every attacked loop lies within the spread at every look."""
    rises: bool
    """Whether every loop rises above the warm start."""
    violations: int
    """Number of rule violations in the histories of all loops."""
    minutes: float
    """Wall-clock minutes, over all parts of an interrupted run."""

    @property
    def attacked(self) -> list[CurveFigures]:
        return [curve for curve in self.loops if curve.loop.kind == "attacked"]

    @property
    def undisturbed(self) -> list[CurveFigures]:
        return [curve for curve in self.loops if curve.loop.kind == "undisturbed"]

    @property
    def passed(self) -> bool:
        return self.within and self.rises and not self.violations


def report_of(
    settings: CurveSettings, results: Sequence[LoopResult], minutes: float
) -> CurveReport:
    """Build the report from the results of all loops."""
    undisturbed = [entry for entry in results if entry.loop.kind == "undisturbed"]
    alpha = ALPHA / len(settings.measured_rounds)
    loops = tuple(_figures(entry, undisturbed, alpha) for entry in results)
    attacked = [entry for entry in loops if entry.loop.kind == "attacked"]
    discordant = fmean(look.discordant for entry in attacked for look in entry.against_undisturbed)
    return CurveReport(
        settings=settings,
        loops=loops,
        alpha=alpha,
        detectable=detectable_difference(settings.held_out, discordant, alpha=alpha),
        within=all(entry.within for entry in attacked),
        rises=all(entry.rises for entry in loops),
        violations=sum(len(entry.history.violations) for entry in loops),
        minutes=round(minutes, 2),
    )


def compare_with_loops(
    result: LoopResult, others: Sequence[LoopResult], alpha: float
) -> tuple[LookComparison, ...]:
    """Compare every look of a loop, except the warm start's, with those of others, by the rule
    above."""
    if not others:
        return ()
    by_round = [{look.round: look.outcomes for look in entry.looks} for entry in others]
    return tuple(
        _compare_look(look.round, look.outcomes, [entry[look.round] for entry in by_round], alpha)
        for look in result.looks[1:]
    )


def _compare_look(
    number: int, outcomes: str, others: Sequence[str], alpha: float
) -> LookComparison:
    shares = [_share(candidate) for candidate in others]
    share, least, greatest = _share(outcomes), min(shares), max(shares)
    nearest = min(others, key=lambda candidate: abs(_share(candidate) - share))
    pairs = paired_table(_solved(outcomes), _solved(nearest))
    apart = not least <= share <= greatest
    p = mcnemar_exact(pairs.only_a, pairs.only_b) if apart else 1.0
    place: Place = "within"
    if p < alpha:
        place = "below" if share < least else "above"
    discordant = (pairs.only_a + pairs.only_b) / len(outcomes)
    return LookComparison(
        round=number, least=least, greatest=greatest, p=p, discordant=discordant, place=place
    )


def _figures(result: LoopResult, undisturbed: Sequence[LoopResult], alpha: float) -> CurveFigures:
    last = result.looks[-1].outcomes
    others = [other for other in undisturbed if other.loop != result.loop]
    outcomes = {look.round: look.outcomes for look in result.looks}
    twins = [other for other in others if other.loop.seed == result.loop.seed]
    return CurveFigures(
        loop=result.loop,
        looks={
            number: Bounds.of(wilson(marks.count("1"), len(marks)))
            for number, marks in outcomes.items()
        },
        gain=_gap(last, result.looks[0].outcomes),
        against_undisturbed=compare_with_loops(result, others, alpha),
        over_twin=_gap(last, twins[0].looks[-1].outcomes) if twins else None,
        history=result.history,
    )


def _gap(first: str, second: str) -> Bounds:
    return Bounds.paired(_solved(first), _solved(second))


def _share(outcomes: str) -> float:
    return outcomes.count("1") / len(outcomes)


def _solved(outcomes: str) -> list[bool]:
    return [mark == "1" for mark in outcomes]
