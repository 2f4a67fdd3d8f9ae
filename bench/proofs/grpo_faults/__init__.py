"""`bench grpo-faults`: attack a reinforcement-learning loop at random, then prove from its history
that no sealed group was lost, doubled or of mixed versions."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("grpo-faults")(grpo_faults)


def grpo_faults(
    groups: Annotated[int, typer.Option(min=8, max=100_000, help="To seal, about.")] = 1000,
    seed: Annotated[
        int | None, typer.Option(help="Of the plan of faults; a random one if not given.")
    ] = None,
    puzzles: Annotated[int, typer.Option(min=2, max=1_000, help="Of a round.")] = 24,
    staleness: Annotated[int, typer.Option(min=0, max=8, help="Of the loop.")] = 0,
    only_kills: Annotated[
        bool, typer.Option(help="Kill workers and the trainer; stop nobody, leave Redis alone.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option(help="New folder for the evidence and the logs; kept.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="End with one line of JSON.")] = False,
) -> None:
    """Attack `train grpo loop`, and check every group. It runs in a process of
    its own, with rollouts on five worker processes, while workers are killed, stopped past their
    leases and continued, Redis is killed and restarted, and the trainer itself is killed and
    started again.

    Then a checker reads the whole history, the store and what the loop wrote down, and trains anew
    from the store: every planned run was admitted and recorded once, every group that was sampled
    was sealed once, of one version, no older than --staleness allows; every version was published
    once; and the last one has the same weights, bit for bit. Exit code 1 for any violation.
    """
    from loopline.bench.proofs.grpo_faults.command import Plan, attack

    plan = Plan(
        groups=groups,
        seed=secrets.randbelow(2**31) if seed is None else seed,
        puzzles=puzzles,
        staleness=staleness,
        only_kills=only_kills,
        output=output,
    )
    attack(plan, as_json=as_json)
