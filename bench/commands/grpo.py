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
            help="Environment with lessons: its name, or package.module:OBJECT. Default: "
            "plan_path.",
        ),
    ] = None,
    seeds: Annotated[
        str,
        typer.Option(
            help="Seeds, comma-separated. Arms that the findings compare use all of them; the "
            "other arms use the first three."
        ),
    ] = "1,2,3,4,5,6,7,8",
    arms: Annotated[
        str,
        typer.Option(
            help="Arms, comma-separated: warm-start, continued-sft, expert-iteration, "
            "single-agent, "
            "single-agent-grpo, mas-grpo, mas-grpo-at-equal-tokens, at-grpo, at-grpo-per-role, "
            "at-grpo-lora-per-role, swapped-policies, tool-agent-alone, best-of-k, dagger. Arms "
            "that these depend on run, too. all does not include dagger, which learns from a "
            "player that knows the solution."
        ),
    ] = "all",
    trials: Annotated[
        str,
        typer.Option(
            help="Tunings to try, comma-separated: own (the game's settings), or factors for its "
            "learning rate, entropy bonus and puzzles per version (answers per supervised step), "
            "joined by +. Each arm that learns tries all of them with the first seed and uses the "
            "best one on the validation split. The prefix compared: limits a tuning to arms with "
            "all seeds; the prefix whole-runs: limits it to MAS + GRPO. A single tuning is used "
            "without trials."
        ),
    ] = TRIALS,
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Setting for all arms that replaces the game's own, such as reinforced.entropy=0; "
            "may be repeated. An unknown name prints all names.",
        ),
    ] = None,
    held_out: Annotated[int, typer.Option(min=1, help="Puzzles to measure on.")] = 1_000,
    jobs: Annotated[
        int, typer.Option(min=1, max=256, help="Arms to run at once, on one core each.")
    ] = 2,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one line of JSON at the end.")
    ] = False,
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
