"""`bench staleness`: the cost of learning from samples of older policy versions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("staleness")(staleness)


def staleness(
    output: Annotated[Path, typer.Argument(help="Folder of models, results and the report.")],
    ages: Annotated[
        str, typer.Option(help="Ages of samples in versions, comma-separated.")
    ] = "0,1,2,4,8,16,32",
    corrections: Annotated[
        str, typer.Option(help="Corrections, comma-separated: none, clip, truncated, decoupled.")
    ] = "none,clip,truncated,decoupled",
    seeds: Annotated[str, typer.Option(help="Seeds, comma-separated.")] = "1",
    updates: Annotated[int, typer.Option(min=1, help="Updates per training.")] = 48,
    episodes: Annotated[int, typer.Option(min=1, help="Puzzles per update.")] = 24,
    held_out: Annotated[int, typer.Option(min=1, help="Puzzles to measure on.")] = 400,
    jobs: Annotated[
        int, typer.Option(min=1, max=256, help="Trainings to run at once, on one core each.")
    ] = 2,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one line of JSON at the end.")
    ] = False,
) -> None:
    """Train on samples of older versions with each correction. Trains one small model by AT-GRPO,
    and prints success and effective sample size as results arrive.

    All trainings use the same number of samples of the same puzzles. Run it again to resume after a
    crash or Ctrl-C, or to add ages, corrections and seeds; finished trainings are not repeated.
    """
    from loopline.bench.errors import UsageError
    from loopline.bench.experiments.grpo.grid import seeds_of
    from loopline.bench.experiments.staleness.cells import StalenessSettings
    from loopline.bench.experiments.staleness.command import measure, parse_ages, parse_corrections
    from loopline.trainers.grpo.arms.training import Reinforced
    from loopline.trainers.grpo.demo.settings import DemoSettings

    wanted = parse_ages(ages)
    if wanted[-1] >= updates:
        raise UsageError(
            f"--updates {updates}: no update would learn from samples of {wanted[-1]} versions "
            f"ago; use at least {wanted[-1] + 1}"
        )
    settings = StalenessSettings(
        updates=updates,
        demo=DemoSettings(
            seeds=seeds_of(seeds), reinforced=Reinforced(episodes=episodes), held_out=held_out
        ),
    )
    measure(output, settings, wanted, parse_corrections(corrections), jobs=jobs, as_json=as_json)
