"""`bench grpo-faults`: attack a reinforcement-learning loop at random, then prove from its history
that no sealed group was lost, doubled or of mixed versions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from loopline.bench.proofs.registering import add_proof


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_proof(app, "grpo-faults", grpo_faults, minutes="3 minutes")


def grpo_faults(
    groups: Annotated[
        int, typer.Option(min=8, max=100_000, help="Groups to collect, about.")
    ] = 1000,
    seed: Annotated[int | None, typer.Option(help="Seed of the faults; random without it.")] = None,
    puzzles: Annotated[int, typer.Option(min=2, max=1_000, help="Puzzles of a round.")] = 24,
    staleness: Annotated[
        int, typer.Option(min=0, max=8, help="Rounds that samples may be old.")
    ] = 0,
    only_kills: Annotated[
        bool,
        typer.Option(help="No SIGSTOP, no restart of Redis: only SIGKILL of workers and trainer."),
    ] = False,
    evidence: Annotated[
        Path | None, typer.Option(help="New folder for the evidence and the logs; kept.")
    ] = None,
) -> None:
    """Attack `train grpo --loop`, and check every group. It runs in a process of
    its own, with rollouts on five worker processes, while workers are killed, stopped past their
    leases and continued, Redis is killed and restarted, and the trainer itself is killed and
    started again.

    Then a checker reads the whole history, the store and what the loop wrote down, and trains anew
    from the store: every planned run was admitted and recorded once, every group that was sampled
    was sealed once, of one version, no older than --staleness allows; every version was published
    once; and the last one has the same weights, bit for bit.
    """
