"""`bench training`: supervised training as `train glpft` does it, beside trl's SFTTrainer."""

from __future__ import annotations

from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("training")(training)


def training(
    size: Annotated[
        str, typer.Option(help="Of the model: micro-0.2m, micro-0.8m or micro-2m.")
    ] = "micro-0.8m",
    samples: Annotated[
        int,
        typer.Option(
            min=8, max=100_000, help="Instructions of the simulator; the rows are their planner's."
        ),
    ] = 400,
    batch: Annotated[int, typer.Option(min=1, help="Rows per step.")] = 48,
    steps: Annotated[
        int,
        typer.Option(
            min=1, help="Measured ones of each repeat; rows of all lengths come in every 8."
        ),
    ] = 16,
    repeats: Annotated[
        int, typer.Option(min=1, max=100, help="Interleaved repeats; the medians are reported.")
    ] = 3,
    threads: Annotated[int, typer.Option(min=1, max=256, help="CPU threads of each.")] = 1,
    seed: Annotated[int, typer.Option(help="Of the instructions, the weights and the order.")] = 1,
    only: Annotated[
        str, typer.Option(metavar="both|ours", help="Whether trl is measured too.")
    ] = "both",
    as_json: Annotated[bool, typer.Option("--json", help="End with one line of JSON.")] = False,
) -> None:
    """Measure supervised training beside trl's SFTTrainer. Tokens per second and memory.

    Same model, rows, precision, threads, optimizer and real tokens per step, on the CPU; only
    completions are learned. trl is measured without packing, and with each packing that works
    there.
    """  # fmt: skip
    from loopline.bench.proofs.training.command import Plan, measure

    measure(
        Plan(
            size=size,
            samples=samples,
            batch=batch,
            steps=steps,
            repeats=repeats,
            threads=threads,
            seed=seed,
            only=only,
        ),
        as_json=as_json,
    )
