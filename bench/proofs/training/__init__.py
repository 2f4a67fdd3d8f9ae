"""`bench training`: supervised training as `train glpft` does it, beside trl's SFTTrainer."""

from __future__ import annotations

from typing import Annotated

import typer

from loopline.bench.proofs.registering import add_proof


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_proof(app, "training", training, minutes="5 minutes")


def training(
    size: Annotated[
        str, typer.Option(help="Model size: micro-0.2m, micro-0.8m or micro-2m.")
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
            min=1, help="Measured steps of each repeat; every 8 of them have rows of all lengths."
        ),
    ] = 16,
    repeats: Annotated[
        int, typer.Option(min=1, max=100, help="Interleaved repeats; the medians are reported.")
    ] = 3,
    threads: Annotated[int, typer.Option(min=1, max=256, help="CPU threads per trainer.")] = 1,
    seed: Annotated[int, typer.Option(help="Seed of rows, weights and order.")] = 1,
    only: Annotated[
        str, typer.Option(metavar="both|ours", help="Whether trl is measured too.")
    ] = "both",
) -> None:
    """Measure supervised training beside trl's SFTTrainer. Tokens per second and memory.

    Same model, rows, precision, threads, optimizer and real tokens per step, on the CPU; only
    completions are learned. trl is measured without packing, and with each packing that works
    there.
    """
