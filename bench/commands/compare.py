"""`bench compare`: two benchmarks, paired question by question."""

from __future__ import annotations

import json
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
    """Compare two benchmarks on the questions that both asked. By the exact McNemar test and
    bootstrap intervals of the differences. Of repeated attempts (--attempts) the mean of each
    question."""
    from loopline.bench.comparison import compare_directories
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
    comparisons = compare_directories(a, b, pairs)
    if options.as_json:
        print(json.dumps([comparison.as_dict() for comparison in comparisons]))
        return
    from rich.console import Console

    console = Console(highlight=False)
    console.print(f"A = {a}\nB = {b}\n", markup=False, soft_wrap=True)
    console.print(_table(comparisons))
    if any(comparison.table is None for comparison in comparisons):
        console.print(
            "Questions were asked several times: each counts by the mean of its attempts, which "
            "are no independent pairs for McNemar's test."
        )


def _table(comparisons: list[ArmComparison]) -> Table:
    """One column per pair: a pair has more figures than a line of a terminal has room for."""
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
            "tokens A − B": f"{comparison.tokens.estimate:+,.1f}",
        }
        for comparison in comparisons
    ]
    for name in columns[0]:
        table.add_row(name, *(column[name] for column in columns))
    return table
