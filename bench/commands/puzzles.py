"""`bench puzzles`: how many held-out puzzles a pair of agents solves."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Annotated

import typer

from loopline.bench.commands.run import (
    ENDS,
    Budget,
    Concurrency,
    Json,
    Output,
    Profile,
    RedisUrl,
    Seconds,
    Seed,
)

Game = Annotated[
    str | None,
    typer.Option(
        metavar="NAME|MODULE:OBJECT",
        help="The environment: its name, or where its object is. Without it, a way through a grid.",
    ),
]
Size = Annotated[int | None, typer.Option(help="Cells along a side; the game's own default.")]
Split = Annotated[
    str | None,
    typer.Option(
        help="test, validation or train; where an environment reads published puzzles, theirs, as "
        "boxoban or boxoban/unfiltered/test."
    ),
]
Samples = Annotated[int, typer.Option(help="How many instances.")]
Arms = Annotated[
    str | None,
    typer.Option(
        help="pair (of three or more agents: team), AGENT_alone, swapped; the whole team without "
        "it. swapped: two agents with each other's policies."
    ),
]
Greedy = Annotated[
    bool | None,
    typer.Option(
        "--greedy/--sampled",
        help="One completion at temperature 0 (the default), or drawn ones.",
        show_default=False,
    ),
]
Candidates = Annotated[
    int | None,
    typer.Option(
        help="Completions per agent and turn, of which the one with the best reward is played: a "
        "search with the rules' help. 1 without it."
    ),
]
Temperature = Annotated[float | None, typer.Option(help="Of drawn completions; 1 without it.")]
Attempts = Annotated[
    int | None, typer.Option(help="Play each instance so often, for pass@k; drawn completions.")
]
Difficulty = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=VALUE", help="Of the generator: boxes=2, obstacles=0.3, equations=[1,2], …"
    ),
]
Setting = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=VALUE", help="How it is played: turns=40, brief=true, view=3, …"),
]
Levels = Annotated[
    Path | None,
    typer.Option(help="File or folder of Boxoban's levels; else LOOPLINE_DATA."),
]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("puzzles", help=f"{inspect.getdoc(puzzles)}\n\n{ENDS}")(puzzles)


def puzzles(
    game: Game = None,
    size: Size = None,
    split: Split = None,
    samples: Samples = 200,
    arms: Arms = None,
    seed: Seed = 123,
    greedy: Greedy = None,
    candidates: Candidates = None,
    temperature: Temperature = None,
    attempts: Attempts = None,
    difficulty: Difficulty = None,
    setting: Setting = None,
    data: Levels = None,
    concurrency: Concurrency = 32,
    budget_usd: Budget = None,
    output: Output = None,
    as_json: Json = False,
    profile: Profile = None,
    redis_url: RedisUrl = None,
    run_seconds: Seconds = 600.0,
) -> None:
    """Unseen puzzles, played by a team of agents or by one of them alone: success by
    policy version, greedy or pass@k, beside players by hand."""
    from loopline.agents.environments.registry import DEFAULT
    from loopline.agents.records import JsonObject
    from loopline.bench.datasets import Request
    from loopline.bench.puzzles.choice import environment_of
    from loopline.bench.puzzles.instances import BENCHMARK
    from loopline.bench.session import Asked, show, start
    from loopline.bench.teams.sampling import sampling
    from loopline.runtime.config.key_value_options import key_value_options

    options = sampling(greedy, candidates, temperature, attempts)
    choices: JsonObject = {
        "game": game or DEFAULT,
        "size": size,
        "difficulty": key_value_options("--difficulty", difficulty or []),
        "setting": key_value_options("--setting", setting or []),
        "attempts": 1 if attempts is None else attempts,
    }
    published = environment_of(choices).published
    ended = start(
        Asked(
            benchmark=BENCHMARK,
            arms=BENCHMARK.parse_arms(arms, choices),
            request=Request(
                split=split or (published.name if data and published else "test"),
                samples=samples,
                seed=seed,
                data=data,
                choices=choices,
            ),
            concurrency=concurrency,
            budget_dollars=budget_usd,
            output=output,
            profile=profile,
            redis_url=redis_url,
            run_seconds=run_seconds,
            options=options,
        )
    )
    show(ended, as_json=as_json)
    raise typer.Exit(ended.exit_code)
