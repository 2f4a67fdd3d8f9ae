"""`train worlds`: writes instructions of the API simulator, solved, as ToolBench's files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from loopline.runtime.terminal.pluralize import counted
from loopline.trainers.data.command import progress_bar


def worlds(
    output: Annotated[Path, typer.Argument(help="Folder to write, not there yet.")],
    split: Annotated[
        str,
        typer.Option(
            help="train, unseen_worlds, unseen_wordings, unseen_combinations or unseen_apis."
        ),
    ] = "train",
    samples: Annotated[int, typer.Option(min=1, max=10_000, help="Instructions.")] = 1_000,
    seed: Annotated[int, typer.Option(help="Of worlds and instructions.")] = 1,
) -> None:
    """Write instructions of the API simulator as ToolBench's files. Each with its oracle's way.

    `train data --toolbench OUTPUT` makes a data set of them; of a held-out split only
    `bench tools --suite tool_steps --split toolbench --data OUTPUT` asks them.
    """
    from loopline.trainers.data.world_files import write_worlds

    try:
        with progress_bar() as progress:
            task = progress.add_task(f"solving worlds:{split}", total=samples)
            solved = write_worlds(
                output, split, samples, seed, lambda made: progress.update(task, completed=made)
            )
    except KeyboardInterrupt:
        # Here, because typer turns it into a silent exit.
        typer.echo(f"stopped; {output} was not written", err=True)
        raise typer.Exit(130) from None
    typer.echo(
        f"{output}: {counted(samples, 'instruction')} of the split {split}, {solved:,} with an "
        f"answer, {samples - solved:,} to give up"
    )
