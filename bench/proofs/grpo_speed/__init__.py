"""`bench grpo-speed`: how fast AT-GRPO's two halves are. Rollouts through the bus beside the same
engine called in this process, and a trainer's step beside trl's on the same batch."""

from __future__ import annotations

from typing import Annotated

import typer

from loopline.bench.proofs.registering import add_proof


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_proof(app, "grpo-speed", grpo_speed, minutes="9 minutes")


def grpo_speed(
    model: Annotated[
        str, typer.Option(help="Model of rollouts and steps: micro name, hub id or folder.")
    ] = "micro:llm",
    runs: Annotated[int, typer.Option(min=1, max=10_000, help="Puzzles of each repeat.")] = 16,
    candidates: Annotated[int, typer.Option(min=2, max=64, help="K: samples of a state.")] = 8,
    max_tokens: Annotated[
        int, typer.Option(min=1, max=4_096, help="Most tokens per completion.")
    ] = 32,
    groups: Annotated[int, typer.Option(min=1, max=10_000, help="Groups of a step.")] = 4,
    prompt: Annotated[int, typer.Option(min=2, help="Longest prompt of a step's groups.")] = 192,
    steps: Annotated[int, typer.Option(min=1, help="Measured steps of each repeat.")] = 2,
    repeats: Annotated[
        int, typer.Option(min=1, max=100, help="Interleaved repeats; the medians are reported.")
    ] = 5,
    only: Annotated[
        str, typer.Option(metavar="both|rollouts|steps", help="Which half is measured.")
    ] = "both",
    trl: Annotated[bool, typer.Option(help="Measure trl's GRPOTrainer too.")] = True,
    seed: Annotated[int, typer.Option(help="Seed of puzzles, samples, batches.")] = 1,
) -> None:
    """Measure rollouts and training steps beside peers. Rollouts through the bus beside the same
    engine in-process, a step beside trl's.

    Rollouts: sampled tokens per second of a gpu worker, a worker per role, a recorder and Redis,
    each a process, against one process without a bus; Plan-Path puzzles, the same seeds, the engine
    on one thread. Steps: tokens per second of one update by the same groups, in fp32 on one thread,
    with prefixes shared (as trainings do) and without; each trainer after two steps that are not
    measured.
    """
