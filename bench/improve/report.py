"""The report of `bench improve`, with the plots of dollars and accuracy over the stream."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from loopline.bench.experiments.document import Document, Section, Table
from loopline.bench.improve.figures import (
    ACCURACY_BAR,
    DOLLARS_BAR,
    GAIN_BAR,
    Bounds,
    ImproveReport,
    Stretch,
    batches_of,
    quarters_of,
)
from loopline.bench.improve.stream import StreamResult
from loopline.bench.report.figures import count, dollars, share
from loopline.runtime.terminal.pages import svg

_WIDTH, _HEIGHT = 460.0, 260.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 60.0, 14.0, 14.0, 44.0


def document(report: ImproveReport) -> Document:
    """Document for a terminal, Markdown and HTML."""
    settings = report.results[0].settings
    prices = settings.prices
    about = (
        f"{count(len(report.results))} streams of {count(settings.questions)} word problems of "
        f"kinds that the small model ({settings.loop.training.model}) has never seen. The big "
        f"model is an endpoint that answers {share(settings.accuracy, 0)} of them correctly, at "
        f"${prices.big_prompt:g} and ${prices.big_completion:g} per million tokens; the small one "
        f"and its trainings cost GPU time, at ${prices.gpu_hour:g} per hour with "
        f"{prices.prompt_speed:,.0f} tokens read and {prices.completion_speed:,.0f} written per "
        "second; a CPU second of a training counts as a GPU second. Audited runs are judged "
        "exactly; the others are not judged."
    )
    batches = batches_of(report.results)
    drawings = [
        (plot(batches, settings.batch, "Dollars per question", lambda s: s.dollars, _dollars),
         "Dollars per question, including trainings and comparisons"),
        (plot(batches, settings.batch, "Accuracy", lambda s: s.accuracy, _share, top=1.0),
         "Share of right answers"),
        (plot(batches, settings.batch, "Accepted", lambda s: s.accepted / s.questions, _share,
               top=1.0),
         "Share of the questions that the small model answered"),
    ]  # fmt: skip
    tables: dict[str, Table] = {
        "Quarters of the stream, all seeds": quarter_table(report.quarters),
        "Seeds": _seeds(report.results),
        "Rounds": _rounds(report.results),
        "Poisoned batches": _poisoned(report.results),
    }
    return Document(
        title="Does the closed loop pay off?",
        about=about,
        sections=[Section(tables=tables, drawings=drawings)],
        verdicts=verdicts(report),
        words=("verdict", "router"),
    )


def verdicts(report: ImproveReport) -> list[str]:
    """Return one sentence per bar."""
    change, gain = report.accuracy_change, report.small_model_gain
    word = {name: verdict_word(passed) for name, passed in report.bars.items()}
    lines = [
        f"{word['dollars_ratio']}: a question of the last quarter costs "
        f"{report.dollars_ratio:.2f} × as much as one of the first (bar {DOLLARS_BAR:g}).",
        f"{word['accuracy_change_low']}: accuracy changes by {in_points(change)} (bar: not "
        f"below {ACCURACY_BAR:g}).",
        f"{word['small_model_gain_low']}: the small model alone gains {in_points(gain)} on "
        f"questions of the new kinds that it was never asked (bar: at least {GAIN_BAR:g}).",
        f"{word['lost']}: {report.lost} runs were lost under {attacks_in_words(report.attacks)}.",
        f"{word['altered']}: {report.altered} answers of the big model differ from those that it "
        "gave.",
    ]
    if report.poison_caught is not None:
        lines.append(
            f"{word['poison_caught']}: batches with swapped labels were "
            f"{'all' if report.poison_caught else 'not all'} caught and rolled back."
        )
    return lines


def attacks_in_words(attacks: Mapping[str, int]) -> str:
    """Describe the number and kinds of the attacks."""
    listed = ", ".join(f"{name} {times}" for name, times in sorted(attacks.items()))
    return f"{sum(attacks.values())} attacks{f' ({listed})' if listed else ''}"


def verdict_word(passed: bool) -> str:
    """Return the word for whether a bar was met."""
    return "Held" if passed else "Missed"


def in_points(value: Bounds) -> str:
    """Format a value in points, with its interval."""
    return f"{value.estimate:+.1f} points (95 % interval {value.low:+.1f} to {value.high:+.1f})"


def quarter_table(quarters: Sequence[Stretch], by: str = "by the small model") -> Table:
    """Table with one row per part; `by`: title of the share answered by the small side."""
    head = ["quarter", "questions", "dollars each", "right", by, "learning"]
    rows = [
        [
            str(at), count(part.questions), dollars(part.dollars), share(part.accuracy),
            share(part.accepted / part.questions), dollars(part.learning_usd),
        ]
        for at, part in enumerate(quarters, 1)
    ]  # fmt: skip
    return head, rows


def _seeds(results: Sequence[StreamResult]) -> Table:
    head = ["seed", "dollars ratio", "right, first", "last", "small before", "after", "CPU minutes"]
    rows: list[list[str]] = []
    for result in results:
        first, *_, last = quarters_of(result)
        rows.append(
            [
                str(result.settings.seed), f"{last.dollars / first.dollars:.2f}",
                share(first.accuracy), share(last.accuracy),
                share(sum(result.before) / len(result.before)),
                share(sum(result.after) / len(result.after)), f"{result.cpu_seconds / 60:.1f}",
            ]
        )  # fmt: skip
    return head, rows


def _rounds(results: Sequence[StreamResult]) -> Table:
    head = ["seed", "after", "examples", "candidate", "serving", "verdict", "CPU s", "accepts"]
    rows = [
        [
            str(result.settings.seed), count(at), count(decision.escalations),
            share(decision.gate.candidate), share(decision.gate.serving),
            "promoted" if decision.promoted else "rolled back", f"{decision.cpu_seconds:.0f}",
            share(decision.accepted_share),
        ]
        for result in results
        for at, decision in result.rounds
    ]  # fmt: skip
    return head, rows


def _poisoned(results: Sequence[StreamResult]) -> Table:
    head = ["seed", "examples", "candidate", "serving", "verdict"]
    rows = [
        [
            str(result.settings.seed), count(decision.escalations),
            share(decision.gate.candidate), share(decision.gate.serving),
            "promoted" if decision.promoted else "rolled back",
        ]
        for result in results
        if (decision := result.poisoned) is not None
    ]  # fmt: skip
    return head, rows


def _dollars(value: float) -> str:
    return dollars(value)


def _share(value: float) -> str:
    return share(value, 0)


def plot(
    batches: Sequence[Stretch],
    size: int,
    label: str,
    value: Callable[[Stretch], float],
    words: Callable[[float], str],
    *,
    top: float | None = None,
) -> str:
    """Plot a curve over the stream, as SVG. `size`: questions per batch; `top`: end of the axis."""
    values = [value(part) for part in batches]
    x = svg.Scale(0.0, float(size * len(batches)), _LEFT, _WIDTH - _RIGHT)
    y = svg.Scale(0.0, top or max(values) * 1.1 or 1.0, _HEIGHT - _BOTTOM, _TOP)
    parts: list[str] = []
    for tick in y.ticks(5):
        parts.append(svg.line(x.start, y(tick), x.end, y(tick), "grid"))
        parts.append(svg.text(x.start - 6, y(tick) + 4, words(tick), "tick", "end"))
    for tick in x.ticks(5):
        parts.append(svg.text(x(tick), _HEIGHT - 26, count(tick), "tick", "middle"))
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    parts.append(svg.text(middle, _HEIGHT - 6, "questions", "axis", "middle"))
    places = [(x((at + 0.5) * size), y(entry)) for at, entry in enumerate(values)]
    parts.append(svg.path(places, "mixing"))
    parts += [svg.tag("circle", cx=at, cy=to, r=4.0, class_="dot arm-1") for at, to in places]
    return svg.picture(_WIDTH, _HEIGHT, label, *parts)
