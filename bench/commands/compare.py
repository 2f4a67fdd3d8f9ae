"""`bench compare`: two benchmarks, or other tools' evaluations, paired question by question."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import typer

from loopline.runtime.program import add_command

if TYPE_CHECKING:
    from rich.table import Table

    from loopline.bench.commands.options import CompareOptions
    from loopline.bench.comparison import ArmComparison


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_command(app, compare, "bench.commands.options:CompareOptions")


def compare(options: CompareOptions) -> None:
    """Compare two benchmarks on the questions that both asked. Uses the exact McNemar test and
    bootstrap intervals of the differences. Repeated attempts (--attempts, epochs) are averaged per
    question. Either side may be an inspect log (a.eval) or lm-eval samples
    (samples_TASK_DATE.jsonl); questions are paired by id."""
    from loopline.bench.comparison import compare_paths
    from loopline.bench.errors import UsageError

    a, b = options.a, options.b
    pairs: list[tuple[str, str]] = []
    for part in (options.arms or "").split(","):
        if not part.strip():
            continue
        left, colon, right = part.strip().partition(":")
        if colon and not right:
            raise UsageError(f"--arms: {part!r} should be ARM or ONE:OTHER")
        pairs.append((left, right or left))
    comparison = compare_paths(a, b, pairs, _scorers(options.scorer))
    if options.as_json:
        for notice in comparison.notices:
            typer.echo(notice, err=True)
        print(json.dumps([arms.as_dict() for arms in comparison.arms]))
        return
    from rich.console import Console

    console = Console(highlight=False)
    console.print(f"A = {a}\nB = {b}\n", markup=False, soft_wrap=True)
    console.print(_table(comparison.arms))
    for note in (*_notes(comparison.arms), *comparison.notices):
        console.print(note, markup=False, soft_wrap=True)


def _scorers(text: str | None) -> tuple[str | None, str | None]:
    from loopline.bench.errors import UsageError

    if text is None:
        return None, None
    left, colon, right = text.partition(":")
    if not left or (colon and not right):
        raise UsageError(f"--scorer: {text!r} should be SCORER or ONE:OTHER")
    return left, right or left


def _notes(comparisons: Sequence[ArmComparison]) -> Iterator[str]:
    """Yield notes about anything that the tables leave out."""
    from loopline.bench.interchange.evaluations import name_some
    from loopline.runtime.terminal.pluralize import format_count

    if any(arms.table is None and arms.several_attempts for arms in comparisons):
        yield (
            "Questions were asked several times: each counts with the mean of its attempts. "
            "McNemar's test does not apply, because attempts are not independent."
        )
    if any(arms.table is None and not arms.several_attempts for arms in comparisons):
        yield "Scores are shares, not right or wrong: McNemar's test does not apply to them."
    for arms in comparisons:
        for name, other, ids in (("A", "B", arms.unmatched_a), ("B", "A", arms.unmatched_b)):
            if ids:
                yield (
                    f"{arms.arm_a}:{arms.arm_b}: {format_count(len(ids), 'question')} of {name} "
                    f"left out because {other} was not asked: {name_some(ids)}"
                )


def _table(comparisons: Sequence[ArmComparison]) -> Table:
    """Print one column per pair: a pair has more figures than fit on a terminal line."""
    from loopline.bench.report import figures as say
    from loopline.runtime.terminal.tables import new_table

    pairs = (
        comparison.arm_a
        if comparison.arm_a == comparison.arm_b
        else f"{comparison.arm_a}:{comparison.arm_b}"
        for comparison in comparisons
    )
    table = new_table("", *pairs, words=("",))
    columns = [
        {
            "questions": f"{comparison.questions:,}",
            "A right": say.share(comparison.accuracy_a),
            "B right": say.share(comparison.accuracy_b),
            "only A right": "–" if comparison.table is None else f"{comparison.table.only_a:,}",
            "only B right": "–" if comparison.table is None else f"{comparison.table.only_b:,}",
            "A − B, points": say.points(comparison.accuracy.estimate),
            "  95 %": f"{say.points(comparison.accuracy.low)} to "
            f"{say.points(comparison.accuracy.high)}",
            "McNemar p": "–" if comparison.p is None else say.probability(comparison.p),
            "tokens A − B": "–"
            if comparison.tokens is None
            else f"{comparison.tokens.estimate:+,.1f}",
        }
        for comparison in comparisons
    ]
    for name in columns[0]:
        table.add_row(name, *(column[name] for column in columns))
    return table
