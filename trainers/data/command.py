"""`train data`: makes a data set and shows what is in it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from loopline.runtime.terminal.pluralize import counted
from loopline.trainers.errors import TrainingError

if TYPE_CHECKING:
    from rich.progress import Progress

    from loopline.trainers.data.datasets import DataSet
    from loopline.trainers.data.sources import Source

_SHOWN_CHARS = 1_600
"""Of a sample's input; its end, where the turn to write begins, is always shown."""
_SHOWN_SKIPPED = 10


def data(
    output: Annotated[Path, typer.Argument(help="Folder to write, not there yet.")],
    worlds: Annotated[
        str | None, typer.Option(help="Split of the API simulator, solved by its oracle: train.")
    ] = None,
    samples: Annotated[int, typer.Option(min=1, help="Instructions of --worlds.")] = 1_000,
    seed: Annotated[int, typer.Option(help="Of --worlds.")] = 1,
    toolbench: Annotated[
        Path | None, typer.Option(help="Folder with ToolBench's `answer` files.")
    ] = None,
    store: Annotated[
        Path | None, typer.Option(help="Folder of recorded runs; those of `umi` that were solved.")
    ] = None,
    tool_style: Annotated[
        str, typer.Option(metavar="documents|signatures", help="How prompts tell the tools.")
    ] = "documents",
    constrained: Annotated[
        bool, typer.Option(help="The caller writes one JSON value; off: the published form.")
    ] = True,
    observation_chars: Annotated[
        int, typer.Option(min=16, max=20_000, help="Longest observation that is read.")
    ] = 1_024,
) -> None:
    """Make training sets of tool use from trajectories. One global and three local ones.

    The last three options are those of the workflow `umi`: runs that are given the same meet the
    texts that were trained on. Sources can be combined; at least one is needed.
    """
    from loopline.agents.roles.umi.settings import UmiOptions
    from loopline.trainers.data.datasets import build, require_free, write

    if tool_style not in ("documents", "signatures"):
        raise TrainingError(f"--tool-style is documents or signatures; got {tool_style!r}")
    if worlds is None and toolbench is None and store is None:
        raise TrainingError("no source: give --worlds train, --toolbench FOLDER or --store FOLDER")
    options = UmiOptions(
        tool_style=tool_style,
        constrained=constrained,
        observation_chars=observation_chars,
    )
    require_free(output)
    try:
        with progress_bar() as progress:
            sources = _read(progress, worlds, samples, seed, toolbench, store)
            total = sum(len(source.trajectories) for source in sources)
            task = progress.add_task("making examples", total=total)
            made = build(sources, options, lambda done: progress.update(task, completed=done))
        write(made, output)
    except KeyboardInterrupt:
        # Here, because typer turns it into a silent exit.
        typer.echo(f"stopped; {output} was not written", err=True)
        raise typer.Exit(130) from None
    _show_card(made)
    _show_samples(made)
    typer.echo(f"{output}: {counted(_rows(made), 'row')}, sha256 {made.card.sha256}")


def _read(
    progress: Progress,
    worlds: str | None,
    samples: int,
    seed: int,
    toolbench: Path | None,
    store: Path | None,
) -> list[Source]:
    from loopline.trainers.data.sources import from_store, from_toolbench, from_worlds

    sources: list[Source] = []
    if worlds is not None:
        task = progress.add_task(f"solving worlds:{worlds}", total=samples)
        sources.append(
            from_worlds(worlds, samples, seed, lambda done: progress.update(task, completed=done))
        )
    if toolbench is not None:
        sources.append(from_toolbench(toolbench))
    if store is not None:
        sources.append(from_store(store))
    return sources


def progress_bar() -> Progress:
    """Of what is made, on a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    console = Console(stderr=True)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        console=console,
        disable=not console.is_terminal,
        transient=True,
    )


def _rows(made: DataSet) -> int:
    return sum(len(rows) for rows in made.sets.values())


def _show_card(made: DataSet) -> None:
    from rich.console import Console

    from loopline.runtime.terminal.safe_text import harmless
    from loopline.runtime.terminal.tables import figures
    from loopline.trainers.data.examples import SETS

    for source in made.card.sources:
        repeated = f", {source.repeated:,} of them repeated" if source.repeated else ""
        typer.echo(
            f"{source.name}: {source.trajectories:,} trajectories{repeated}, "
            f"{counted(source.instructions, 'instruction')}"
        )
        for where in source.skipped_where[:_SHOWN_SKIPPED]:
            typer.echo(f"  skipped {harmless(where)}")
        if len(source.skipped_where) > _SHOWN_SKIPPED:
            reasons = ", ".join(f"{reason}: {n:,}" for reason, n in source.skipped.items())
            typer.echo(f"  skipped {len(source.skipped_where):,} in all: {reasons}")
    table = figures(
        "set", "source", "rows", "instructions", "dropped", words=("set", "source", "dropped")
    )
    for name in SETS:
        card = made.card.sets[name]
        for source in sorted({*card.examples, *card.dropped}):
            reasons = card.dropped.get(source, {})
            table.add_row(
                name,
                source,
                f"{card.examples.get(source, 0):,}",
                f"{card.instructions.get(source, 0):,}",
                "; ".join(f"{reason}: {n:,}" for reason, n in reasons.items()),
            )
    width = None if sys.stdout.isatty() else 120
    Console(highlight=False, width=width).print(table)


def _show_samples(made: DataSet) -> None:
    from loopline.runtime.terminal.safe_text import harmless
    from loopline.trainers.data.examples import SETS

    for name in SETS:
        sample = made.sets[name][0]
        rule = f"── {name}: {sample.source} {sample.trajectory_id}, step {sample.step} "
        typer.echo(rule.ljust(80, "─"))
        cut = len(sample.input) - _SHOWN_CHARS
        shown = sample.input if cut <= 0 else f"[{cut:,} characters …]{sample.input[cut:]}"
        typer.echo(harmless(shown))
        typer.echo("── learns ".ljust(80, "─"))
        typer.echo(harmless(sample.target_text))
