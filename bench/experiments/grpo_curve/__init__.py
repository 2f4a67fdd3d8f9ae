"""`bench grpo-curve`: does a loop with randomly killed workers and trainer learn like an
undisturbed loop?

A small model memorizes how a weak team plays Plan-Path. From this warm start, several loops run
through the bus, each with its own adapters: undisturbed loops with different seeds, and attacked
ones. After a loop ends, this process measures each round's published adapters by playing the same
held-out puzzles.

The modules: `settings`, `loops` (one loop, and its folder), `looks` (the measurement), `figures`
(and the verdict), `tables`, `report`, `command`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("grpo-curve")(grpo_curve)


def grpo_curve(
    output: Annotated[Path, typer.Argument(help="Folder of models, loops and the report.")],
    undisturbed: Annotated[
        int, typer.Option(min=2, max=100, help="Loops without faults; their seeds start at --seed.")
    ] = 5,
    attacked: Annotated[
        int,
        typer.Option(min=1, max=100, help="Attacked loops, twins of the first undisturbed ones."),
    ] = 1,
    rounds: Annotated[int, typer.Option(min=1, max=1_000, help="Rounds per loop.")] = 8,
    puzzles: Annotated[int, typer.Option(min=1, max=1_000, help="Puzzles per round.")] = 16,
    held_out: Annotated[int, typer.Option(min=1, help="Puzzles to measure on.")] = 400,
    look_every: Annotated[int, typer.Option(min=1, help="Rounds between measurements.")] = 1,
    seed: Annotated[
        int, typer.Option(min=0, help="Seed of the warm start and the first loop.")
    ] = 1,
    only_kills: Annotated[
        bool,
        typer.Option(help="No SIGSTOP, no restart of Redis: only SIGKILL of workers and trainer."),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one line of JSON at the end.")
    ] = False,
) -> None:
    """Compare the curves of attacked and undisturbed loops. All loops learn Plan-Path from one warm
    start; some are attacked, as `bench grpo-faults` does. The attacked curve is compared with the
    spread of the others.

    With the defaults, each loop seals about 1,200 groups. This process measures each round's
    adapters by playing held-out puzzles. Exit code 1 if an attacked curve leaves the spread, a loop
    does not rise above the warm start, or a history has a violation. Run it again to resume after a
    crash or Ctrl-C; finished loops are not repeated.
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
