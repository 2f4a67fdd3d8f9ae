"""Words and tables of the report."""

from __future__ import annotations

from loopline.bench.experiments.document import Table
from loopline.bench.experiments.grpo_curve.figures import (
    ALPHA,
    CurveFigures,
    CurveReport,
    LookComparison,
)
from loopline.bench.experiments.intervals import points, share
from loopline.bench.report import figures as say
from loopline.runtime.terminal.pluralize import format_count

TITLE = "The learning curve of an attacked loop"


def about(report: CurveReport) -> str:
    """Describe the experiment."""
    settings = report.settings
    rewarded, environment = settings.reinforced, settings.game.environment
    sides = " x ".join(str(getattr(settings.game.puzzle, side)) for side in environment.sides)
    return (
        f"`train grpo loop` on {f'{environment.title} {sides}'.rstrip()}, from a warm start "
        f"of {settings.supervised.steps} supervised steps: "
        f"{format_count(rewarded.steps, 'round')} of "
        f"{format_count(rewarded.episodes, 'puzzle')}, K = {rewarded.candidates}, adapters of rank "
        f"{rewarded.rank}; the trainer, four workers, a recorder and Redis are processes. "
        f"{format_count(len(report.undisturbed), 'undisturbed loop')}, "
        f"{len(report.attacked)} attacked, with the same settings; loops of one seed are twins "
        "(the same first adapters, puzzles and seeds of every completion). The adapters of each "
        f"round are measured on the same {settings.held_out:,} held-out puzzles at temperature "
        "1, with the same seed."
    )


def rule(report: CurveReport) -> str:
    """Describe the rule of the verdict."""
    criterion = (
        "no difference would have been found at the observed discordance"
        if report.detectable is None
        else f"a difference of {say.points(report.detectable).lstrip('+')} points would have been "
        "found in four of five cases"
    )
    called = sum(not curve.within for curve in report.undisturbed)
    return (
        "A look is out of the spread if the loop solves fewer puzzles than every undisturbed one, "
        "or more than every one, and McNemar's exact test against the nearest of them, puzzle by "
        f"puzzle, has p < {report.alpha:.4f} ({ALPHA:.0%} over the curve's looks). At one look, "
        f"{criterion}. The same rule, applied to each undisturbed loop against the others, flags "
        f"{called} of {len(report.undisturbed)}."
    )


def verdicts(report: CurveReport) -> list[str]:
    """Verdict on each attacked loop, in one sentence."""
    lines: list[str] = []
    for curve in report.attacked:
        out = [
            f"{look.place} it at round {look.round}"
            for look in curve.against_undisturbed
            if look.place != "within"
        ]
        looks = format_count(len(curve.against_undisturbed), "look")
        lines.append(
            f"{curve.loop.name}: out of the undisturbed loops' spread, {', '.join(out)}, of {looks}"
            if out
            else f"{curve.loop.name}: within the undisturbed loops' spread at all of {looks}"
        )
    flat = [curve for curve in report.loops if not curve.rises]
    if flat:
        lines += [
            f"{curve.loop.name} does not improve on the warm start: {points(curve.gain)} points"
            for curve in flat
        ]
    else:
        least = min(report.loops, key=lambda curve: curve.gain.low)
        lines.append(
            f"every loop improves on the warm start, {least.loop.name} least: "
            f"{points(least.gain)} points"
        )
    groups = sum(curve.history.groups for curve in report.attacked)
    lines.append(
        f"{format_count(report.violations, 'violation')} in the histories of "
        f"{format_count(len(report.loops), 'loop')}; {format_count(groups, 'group')} sealed under "
        "attack"
    )
    return lines


def tables(report: CurveReport) -> dict[str, Table]:
    """Tables by caption."""
    return {
        "Held-out puzzles solved, by round": curves(report),
        "Attacked loops compared with the undisturbed ones": comparisons(report.attacked),
        "Each undisturbed loop compared with the others": comparisons(report.undisturbed),
        "Loops": loops(report),
    }


def curves(report: CurveReport) -> Table:
    """Table with one column per loop."""
    rounds = (0, *report.settings.measured_rounds)
    rows = [
        [
            "warm start" if number == 0 else str(number),
            *(share(curve.looks[number]) for curve in report.loops),
        ]
        for number in rounds
    ]
    return ["round", *(curve.loop.name for curve in report.loops)], rows


def comparisons(loops: list[CurveFigures]) -> Table:
    """Table of every look, with the rule's verdict."""
    head = ["loop", "round", "solved", "least–greatest of the others", "p", "verdict"]
    rows = [
        [curve.loop.name, str(look.round), say.share(curve.looks[look.round].estimate),
         say.span(look.least, look.greatest), _p(look), look.place]
        for curve in loops
        for look in curve.against_undisturbed
    ]  # fmt: skip
    return head, rows


def loops(report: CurveReport) -> Table:
    """Table of the loops and the attacks on them."""
    head = ["loop", "over warm start", "over its twin", "groups", "trained", "injected", "seconds",
            "violations"]  # fmt: skip
    rows = [
        [
            curve.loop.name,
            points(curve.gain),
            "–" if curve.over_twin is None else points(curve.over_twin),
            say.count(curve.history.groups),
            say.count(curve.history.trained_groups),
            ", ".join(f"{kind} {times}" for kind, times in curve.history.injected.items()) or "–",
            say.count(curve.history.seconds),
            say.count(len(curve.history.violations)),
        ]
        for curve in report.loops
    ]
    return head, rows


def ending(report: CurveReport) -> str:
    """Describe the time taken."""
    return f"{report.minutes:,.1f} minutes"


def _p(look: LookComparison) -> str:
    return "–" if look.p == 1.0 else say.probability(look.p)
