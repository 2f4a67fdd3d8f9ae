"""`bench grpo`: the claim of AT-GRPO's paper, at small scale."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

TRIALS = (
    "own,rate=0.3,compared:rate=3,compared:entropy=0,compared:batch=0.33,whole-runs:batch=0.0625"
)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("grpo")(grpo)


def grpo(
    output: Annotated[Path, typer.Argument(help="Folder of models, results and the report.")],
    game: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|MODULE:OBJECT",
            help="An environment with lessons: its name, or where its object is. Without it, a way "
            "through a grid.",
        ),
    ] = None,
    seeds: Annotated[
        str,
        typer.Option(
            help="Seeds, comma-separated. Arms that the findings compare have all of them, the "
            "others the "
            "first three."
        ),
    ] = "1,2,3,4,5,6,7,8",
    arms: Annotated[
        str,
        typer.Option(
            help="Arms, comma-separated: warm-start, continued-sft, expert-iteration, "
            "single-agent, "
            "single-agent-grpo, mas-grpo, mas-grpo-at-equal-tokens, at-grpo, at-grpo-per-role, "
            "at-grpo-lora-per-role, swapped-policies, tool-agent-alone, best-of-k; those that "
            "these need are done as well."
        ),
    ] = "all",
    trials: Annotated[
        str,
        typer.Option(
            help="Comma-separated, own (the game's settings) or factors of its learning rate, its "
            "entropy bonus, its puzzles per version (answers per supervised step), joined by +: "
            "each arm that learns is tried in all these ways on the first seed, and takes the one "
            "that is best by the validation split. With compared: before it a way is tried only in "
            "arms that have all seeds, with whole-runs: only in MAS + GRPO. One alone is taken "
            "without trials."
        ),
    ] = TRIALS,
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="A setting of all arms in place of the game's own, as in reinforced.entropy=0; "
            "may be repeated. A wrong name lists all names.",
        ),
    ] = None,
    held_out: Annotated[int, typer.Option(min=1, help="Puzzles to measure on.")] = 1_000,
    jobs: Annotated[int, typer.Option(min=1, max=256, help="Arms at once, each on one core.")] = 2,
    as_json: Annotated[bool, typer.Option("--json", help="End with one line of JSON.")] = False,
) -> None:
    """Train AT-GRPO and its peers on one game, and measure them. All start from random weights.

    For each seed, the arms that learn from rewards, including expert iteration, draw the same
    number of samples as AT-GRPO from the same puzzles; continued SFT, and a second MAS + GRPO arm,
    get its number of tokens instead. Each arm uses the settings that did best for it in the same
    trials. Success on held-out puzzles is printed as results arrive. Run it again to resume after a
    crash or Ctrl-C, or to add seeds, arms and trials; finished work is not repeated.
    """
    from loopline.agents.environments.registry import DEFAULT
    from loopline.bench.experiments.grpo.command import measure
    from loopline.bench.experiments.grpo.grid import grid_of

    grid = grid_of(
        output,
        game=game or DEFAULT,
        seeds=seeds,
        arms=arms,
        trials=trials,
        held_out=held_out,
        jobs=jobs,
        changes=changes or (),
    )
    measure(grid, as_json=as_json)
