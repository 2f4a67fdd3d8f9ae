"""`train data` makes a data set and shows its contents; `train worlds` writes solved instructions
of the API simulator as ToolBench's files."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import typer

from loopline.runtime.terminal.pluralize import format_count

if TYPE_CHECKING:
    from rich.progress import Progress

    from loopline.trainers.data.datasets import DataSet
    from loopline.trainers.data.options import DataOptions, WorldsOptions
    from loopline.trainers.data.sources import Source

_SHOWN_CHARS = 1_600
"""Most characters shown of a sample's input; its end, where the model's turn starts, is always
shown."""
_SHOWN_SKIPPED = 10


def data(options: DataOptions) -> None:
    """Make training sets of tool use from trajectories. One is global, three are local.

    Sources can be combined; at least one is needed.
    """
    from loopline.agents.roles.umi.settings import UmiOptions
    from loopline.trainers.data.datasets import build, require_free, write
    from loopline.trainers.data.options import TurnOptions

    output = options.output
    turns = UmiOptions(**{name: getattr(options, name) for name in TurnOptions.model_fields})
    require_free(output)
    try:
        with progress_bar() as progress:
            sources = _read(progress, options)
            total = sum(len(source.trajectories) for source in sources)
            task = progress.add_task("making examples", total=total)
            data_set = build(sources, turns, lambda count: progress.update(task, completed=count))
        write(data_set, output)
    except KeyboardInterrupt:
        # Here, because typer turns it into a silent exit.
        typer.echo(f"stopped; {output} was not written", err=True)
        raise typer.Exit(130) from None
    _show_card(data_set)
    _show_samples(data_set)
    typer.echo(f"{output}: {format_count(_rows(data_set), 'row')}, sha256 {data_set.card.sha256}")


def _read(progress: Progress, options: DataOptions) -> list[Source]:
    from loopline.trainers.data.sources import from_store, from_toolbench, from_worlds

    sources: list[Source] = []
    if options.worlds is not None:
        task = progress.add_task(f"solving worlds:{options.worlds}", total=options.samples)
        sources.append(
            from_worlds(
                options.worlds,
                options.samples,
                options.seed,
                lambda count: progress.update(task, completed=count),
            )
        )
    if options.toolbench is not None:
        sources.append(from_toolbench(options.toolbench))
    if options.store is not None:
        sources.append(from_store(options.store))
    return sources


def progress_bar() -> Progress:
    """Progress bar of the items made so far, on a terminal only."""
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


def _rows(data_set: DataSet) -> int:
    return sum(len(rows) for rows in data_set.sets.values())


def _show_card(data_set: DataSet) -> None:
    from rich.console import Console

    from loopline.runtime.terminal.safe_text import sanitize
    from loopline.runtime.terminal.tables import new_table
    from loopline.trainers.data.examples import SETS

    for source in data_set.card.sources:
        repeated = f", {source.repeated:,} of them repeated" if source.repeated else ""
        typer.echo(
            f"{source.name}: {source.trajectories:,} trajectories{repeated}, "
            f"{format_count(source.instructions, 'instruction')}"
        )
        for where in source.skipped_where[:_SHOWN_SKIPPED]:
            typer.echo(f"  skipped {sanitize(where)}")
        if len(source.skipped_where) > _SHOWN_SKIPPED:
            reasons = ", ".join(f"{reason}: {n:,}" for reason, n in source.skipped.items())
            typer.echo(f"  skipped {len(source.skipped_where):,} in all: {reasons}")
    table = new_table(
        "set", "source", "rows", "instructions", "dropped", words=("set", "source", "dropped")
    )
    for name in SETS:
        card = data_set.card.sets[name]
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


def _show_samples(data_set: DataSet) -> None:
    from loopline.runtime.terminal.safe_text import sanitize
    from loopline.trainers.data.examples import SETS

    for name in SETS:
        sample = data_set.sets[name][0]
        rule = f"── {name}: {sample.source} {sample.trajectory_id}, step {sample.step} "
        typer.echo(rule.ljust(80, "─"))
        cut = len(sample.input) - _SHOWN_CHARS
        text = sample.input if cut <= 0 else f"[{cut:,} characters …]{sample.input[cut:]}"
        typer.echo(sanitize(text))
        typer.echo("── learns ".ljust(80, "─"))
        typer.echo(sanitize(sample.target_text))


def worlds(options: WorldsOptions) -> None:
    """Write instructions of the API simulator as ToolBench's files. Each has its oracle's solution.

    `train data --toolbench OUTPUT` makes a data set from them; a held-out split is only for `bench
    tools --suite tool_steps --split toolbench --data OUTPUT`.
    """
    from loopline.trainers.data.world_files import write_worlds

    output, split, samples, seed = options.output, options.split, options.samples, options.seed
    try:
        with progress_bar() as progress:
            task = progress.add_task(f"solving worlds:{split}", total=samples)
            solved = write_worlds(
                output, split, samples, seed, lambda count: progress.update(task, completed=count)
            )
    except KeyboardInterrupt:
        # Here, because typer turns it into a silent exit.
        typer.echo(f"stopped; {output} was not written", err=True)
        raise typer.Exit(130) from None
    typer.echo(
        f"{output}: {format_count(samples, 'instruction')} of the split {split}, {solved:,} with "
        "an "
        f"answer, {samples - solved:,} to give up"
    )
