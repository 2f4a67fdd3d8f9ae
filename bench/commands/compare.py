"""`bench compare`: two benchmarks, paired question by question."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from bench.commands.run import Json


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("compare")(compare)


def compare(
    a: Annotated[Path, typer.Argument(help="One output directory.")],
    b: Annotated[Path, typer.Argument(help="The other.")],
    arms: Annotated[
        str | None,
        typer.Option(metavar="A:B,…", help="Arms to pair; without it those that both have."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Compare two benchmarks on the questions that both were asked: exact McNemar, bootstrap
    intervals of the differences."""
    from bench.comparison import compare_directories
    from bench.errors import UsageError
    from bench.report import figures as say

    pairs: list[tuple[str, str]] = []
    for part in (arms or "").split(","):
        if not part.strip():
            continue
        left, colon, right = part.strip().partition(":")
        if colon and not right:
            raise UsageError(f"--arms: {part!r} should be ARM or ONE:OTHER")
        pairs.append((left, right or left))
    found = compare_directories(a, b, pairs)
    if as_json:
        print(json.dumps([one.as_dict() for one in found]))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"A = {a}, B = {b}", title_justify="left")
    for name in ("A", "B"):
        table.add_column(name)
    for name in ("n", "A right", "B right", "only A", "only B", "A − B, points", "McNemar p",
                 "tokens A − B"):  # fmt: skip
        table.add_column(name, justify="right")
    for one in found:
        gap, tokens = one.accuracy, one.tokens
        table.add_row(
            one.arm_a,
            one.arm_b,
            str(one.table.n),
            say.share((one.table.both + one.table.only_a) / one.table.n),
            say.share((one.table.both + one.table.only_b) / one.table.n),
            str(one.table.only_a),
            str(one.table.only_b),
            f"{say.points(gap.estimate)} [{say.points(gap.low)}, {say.points(gap.high)}]",
            say.probability(one.p),
            f"{tokens.estimate:+,.1f}",
        )
    Console().print(table)
