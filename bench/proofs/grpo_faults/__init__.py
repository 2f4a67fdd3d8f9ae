"""`bench grpo-faults`: attack a reinforcement-learning loop at random, then prove from its history
that no sealed group was lost, doubled or of mixed versions. `bench grpo-curve`: show that it learns
all the same."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("grpo-faults")(grpo_faults)
    app.command("grpo-curve")(grpo_curve)


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
    """Run `train grpo --loop` in a process of its own, with rollouts on five worker processes,
    while workers are killed, stopped past their leases and continued, Redis is killed and
    restarted, and the trainer itself is killed and started again.

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


def grpo_curve(
    output: Annotated[Path, typer.Argument(help="Folder of models, loops and the report.")],
    undisturbed: Annotated[
        int, typer.Option(min=2, max=100, help="Loops that nobody attacks: seeds from --seed on.")
    ] = 5,
    attacked: Annotated[
        int, typer.Option(min=1, max=100, help="Loops that are: twins of the first ones.")
    ] = 1,
    rounds: Annotated[int, typer.Option(min=1, max=1_000, help="Of each loop.")] = 8,
    puzzles: Annotated[int, typer.Option(min=1, max=1_000, help="Of each round.")] = 16,
    held_out: Annotated[int, typer.Option(min=1, help="Puzzles to measure on.")] = 400,
    look_every: Annotated[int, typer.Option(min=1, help="Rounds between measurements.")] = 1,
    seed: Annotated[int, typer.Option(min=0, help="Of the warm start and the first loop.")] = 1,
    only_kills: Annotated[
        bool, typer.Option(help="Kill workers and the trainer; stop nobody, leave Redis alone.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="End with one line of JSON.")] = False,
) -> None:
    """Let loops of `train grpo --loop` learn Plan-Path from one warm start, some of them attacked
    as by `bench grpo-faults`, and hold the attacked curve against the spread of the others.

    With the defaults each loop seals about 1,200 groups. Adapters are measured after each round by
    play of held-out puzzles, in this process. Exit code 1 if an attacked curve leaves the spread, a
    loop does not rise over the warm start, or a history has a violation. Run it again to go on
    after a crash or Ctrl-C; finished loops are not done again.
    """
    from loopline.bench.experiments.grpo_curve.command import measure
    from loopline.bench.experiments.grpo_curve.settings import settings_of

    settings = settings_of(
        undisturbed=undisturbed,
        attacked=attacked,
        rounds=rounds,
        puzzles=puzzles,
        held_out=held_out,
        look_every=look_every,
        seed=seed,
        only_kills=only_kills,
    )
    measure(output, settings, as_json=as_json)
