"""Two plots for each size: what the methods solve, and what GLPFT solves more than the others."""

from __future__ import annotations

from loopline.bench.experiments.glpft.figures import ALL, SizeFigures
from loopline.bench.report import intervals
from loopline.bench.report.figures import points, share, span


def solved_plot(size: SizeFigures) -> str:
    """Each method's share, with its seeds."""
    lines = [
        intervals.Line(
            words=f"{each.method}: {share(found.mean.estimate)} "
            f"({span(found.mean.low, found.mean.high)})",
            interval=found.mean,
            mark=f"arm-{at % 6}",
            dots=found.seeds,
        )
        for at, each in enumerate(size.methods)
        for found in (each.solved[ALL],)
    ]
    return intervals.shares_plot("Solved", lines, share)


def differences_plot(size: SizeFigures) -> str:
    """GLPFT less each other method, paired."""
    lines: list[intervals.Line] = []
    for each in size.differences:
        gap = each.solved[ALL]
        words = (
            f"{each.first} − {each.second}: {points(gap.estimate)} "
            f"[{points(gap.low)}, {points(gap.high)}]"
        )
        lines.append(intervals.Line(words, gap, intervals.certainty(gap)))
    return intervals.differences_plot("Paired differences", lines, points)
