"""`bench compare`: two benchmarks, paired question by question."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import typer

from loopline.runtime.program import add_command

if TYPE_CHECKING:
    from rich.table import Table

    from loopline.bench.commands.options import CompareOptions
    from loopline.bench.comparison import Compared


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
    found = compare_directories(a, b, pairs)
    if options.as_json:
        print(json.dumps([one.as_dict() for one in found]))
        return
    from rich.console import Console

    console = Console(highlight=False)
    console.print(f"A = {a}\nB = {b}\n", markup=False, soft_wrap=True)
    console.print(_table(found))
    if any(one.table is None for one in found):
        console.print(
            "Questions were asked several times: each counts by the mean of its attempts, which "
            "are no independent pairs for McNemar's test."
        )


def _table(found: list[Compared]) -> Table:
    """One column per pair: a pair has more figures than a line of a terminal has room for."""
    from loopline.bench.report import figures as say
    from loopline.runtime.terminal.tables import figures

    pairs = (one.arm_a if one.arm_a == one.arm_b else f"{one.arm_a}:{one.arm_b}" for one in found)
    table = figures("", *pairs, words=("",))
    columns = [
        {
            "questions": f"{one.questions:,}",
            "A right": say.share(one.accuracy_a),
            "B right": say.share(one.accuracy_b),
            "only A right": "–" if one.table is None else f"{one.table.only_a:,}",
            "only B right": "–" if one.table is None else f"{one.table.only_b:,}",
            "A − B, points": say.points(one.accuracy.estimate),
            "  95 %": f"{say.points(one.accuracy.low)} to {say.points(one.accuracy.high)}",
            "McNemar p": "–" if one.p is None else say.probability(one.p),
            "tokens A − B": f"{one.tokens.estimate:+,.1f}",
        }
        for one in found
    ]
    for name in columns[0]:
        table.add_row(name, *(column[name] for column in columns))
    return table
