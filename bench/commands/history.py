"""`bench history`: recorded measurements over time."""

from __future__ import annotations

from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("history")(history)


def history(
    proof: Annotated[
        str | None, typer.Argument(help="Proof, such as engine. Default: all recorded proofs.")
    ] = None,
    everything: Annotated[
        bool,
        typer.Option("--all", help="Show every measurement, not only those of the whole proof."),
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Exit with code 1 if a measurement got worse.")
    ] = False,
) -> None:
    """Show recorded measurements of proofs, and what got worse. Lines are compared if machine and
    options are the same.

    A proof's `--record` adds a line. A measurement is worse if its interval lies entirely on the
    worse side of the previous line's interval, or if it misses a bar that was met before.
    """
    import json
    import sys

    from rich.console import Console
    from rich.markup import escape

    from loopline.bench.errors import UsageError
    from loopline.bench.proofs import baselines
    from loopline.bench.proofs.harness import WIDTH
    from loopline.bench.proofs.history import heading, rows, series_of
    from loopline.runtime.errors import EXIT_FAILED
    from loopline.runtime.terminal.pluralize import format_count
    from loopline.runtime.terminal.tables import new_table

    proof_names = baselines.recorded_proofs()
    if proof is not None and proof not in proof_names:
        raise UsageError(
            f"{baselines.folder()} has no lines of {proof!r}; `bench {proof} --record` adds one. "
            f"It has lines of: {', '.join(proof_names) or 'nothing'}"
        )
    if not proof_names:
        typer.echo(f"no lines in {baselines.folder()}; `--record` of a proof adds one")
        return
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    worse = 0
    for name in [proof] if proof else proof_names:
        for series in series_of(baselines.read(name)):
            last = series.lines[-1]
            console.print(
                f"\n{name}: {format_count(len(series.lines), 'line')}, {last.machine}; "
                f"{json.dumps(last.options)}",
                markup=False, highlight=False, soft_wrap=True,
            )  # fmt: skip
            table = new_table(*heading(series), words=("measurement",))
            for row in rows(series, everything=everything):
                table.add_row(*map(escape, row))
            console.print(table)
            worse += len(series.worse)
            for what in series.worse:
                console.print(f"[red]worse[/red] {escape(what)}", highlight=False)
    if check and worse:
        raise typer.Exit(EXIT_FAILED)
