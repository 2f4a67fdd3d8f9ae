"""The drawings: what arms solve, how they differ, and how they came there."""

from __future__ import annotations

from loopline.bench.experiments.grpo.figures import GrpoReport
from loopline.bench.report import intervals
from loopline.bench.report.figures import points, share, span
from loopline.runtime.terminal.pages.curves import Curve, Point, curves_plot


def solved_plot(report: GrpoReport) -> str:
    """Each arm's share, with its seeds."""
    lines = [
        intervals.Line(
            words=f"{each.arm}: {share(each.success.estimate)} "
            f"({span(each.success.low, each.success.high)})",
            interval=each.success.interval,
            mark=f"arm-{at % 6}",
            dots=tuple(found.estimate for found in each.by_seed.values()),
        )
        for at, each in enumerate(report.arms)
    ]
    return intervals.shares_plot("Solved", lines, share)


def differences_plot(report: GrpoReport) -> str:
    """Each claim, paired."""
    lines = [
        intervals.Line(
            words=f"{each.first} − {each.second}: {points(each.gap.estimate)} "
            f"[{points(each.gap.low)}, {points(each.gap.high)}]",
            interval=each.gap.interval,
            mark=intervals.certainty(each.gap.interval),
        )
        for each in report.differences
    ]
    return intervals.differences_plot("Paired differences", lines, points)


def curves_plots(report: GrpoReport) -> tuple[str, str]:
    """Greedy success on puzzles of the validation split over samples, and over tokens; empty
    without a curve."""
    shown = [each for each in report.arms if len(each.curve) > 1]
    return (
        _curves([(e.arm, [(p.samples, p.success, p.low, p.high) for p in e.curve]) for e in shown],
                "samples"),
        _curves([(e.arm, [(p.tokens, p.success, p.low, p.high) for p in e.curve]) for e in shown],
                "tokens"),
    )  # fmt: skip


def _curves(lines: list[tuple[str, list[tuple[float, float, float, float]]]], over: str) -> str:
    curves = [Curve(name, [Point(*values) for values in found]) for name, found in lines]
    return curves_plot(
        f"Success over {over}", curves, x_label=f"{over} in training", say=share, least=0.0
    )
