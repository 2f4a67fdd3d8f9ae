"""`bench code` and `bench math`: how many problems a team of two agents solves."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from loopline.bench.commands.puzzles import Attempts, Greedy, Temperature
from loopline.bench.commands.run import (
    ENDS,
    Budget,
    Concurrency,
    Json,
    Output,
    Profile,
    RedisUrl,
    Samples,
    SamplesOfAny,
    Seconds,
    Seed,
)

CodeSet = Annotated[
    str,
    typer.Option(
        "--dataset",
        help="humaneval, mbpp, mbpp_sanitized, apps, codecontests, livecodebench.",
    ),
]
MathSet = Annotated[
    str,
    typer.Option(
        "--dataset",
        help="gsm8k, wordproblems (generated: 60 without --samples), aime24, aime25, "
        "olympiadbench.",
    ),
]
CodeSplit = Annotated[
    str,
    typer.Option(
        help="test; of mbpp also validation, train, prompt; of apps train, and selected (150 of "
        "its problems); of codecontests train, valid; of livecodebench test2 to test6."
    ),
]
MathSplit = Annotated[
    str,
    typer.Option(
        help="test; of gsm8k also train; of wordproblems unseen_wordings and the other splits of "
        "its generator, where test is all that are kept away from training."
    ),
]
CodeArms = Annotated[
    str,
    typer.Option(help="team, coder_alone, swapped. swapped: the team with each other's policies."),
]
MathArms = Annotated[
    str,
    typer.Option(
        help="team, reasoner_alone, swapped. swapped: the team with each other's policies."
    ),
]
Candidates = Annotated[
    int | None,
    typer.Option(
        help="Completions per agent and turn, of which the one with the best reward is played: a "
        "search with the help of hidden tests and gold answers. 1 without it."
    ),
]
Setting = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=VALUE", help="How it is played: turns=5, …"),
]
Data = Annotated[
    Path | None,
    typer.Option(
        help="Folder of the data sets, or of mathematics the file itself; else LOOPLINE_DATA."
    ),
]
UnsafeExec = Annotated[
    bool,
    typer.Option(
        "--unsafe-exec",
        help="The bench runs generated programs though bubblewrap is missing. The deployment's "
        "judge has its own: runtime up --unsafe-exec.",
    ),
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("code")(
        _of(
            "code",
            "Programs by a coder and a unit tester, or the coder alone. Hidden tests in a sandbox "
            "judge them: success by policy version, greedy or pass@k, and what failures are made "
            "of. MBPP is asked as published, with all its assertions shown: there nothing is "
            "hidden.",
            dataset=(CodeSet, "humaneval"),
            split=(CodeSplit, "test"),
            arms=(CodeArms, "team"),
        )
    )
    app.command("math")(
        _of(
            "math",
            "Mathematics by a reasoner and a tool user, or one alone. Questions of grade school "
            "and of competitions: success by policy version, greedy or pass@k, and what failures "
            "are made of.",
            dataset=(MathSet, "aime24"),
            split=(MathSplit, "test"),
            arms=(MathArms, "team"),
            samples=(SamplesOfAny, None),
        )
    )


def _of(benchmark: str, about: str, **options: tuple[Any, object]) -> Callable[..., None]:
    """`play` with its benchmark chosen: the same options, some with a help and a default of their
    own."""

    def command(**given: Any) -> None:
        play(benchmark, **given)

    asked = inspect.signature(play, eval_str=True)
    command.__signature__ = asked.replace(  # type: ignore[attr-defined]
        parameters=[
            option.replace(annotation=own[0], default=own[1])
            if (own := options.get(name)) is not None
            else option
            for name, option in asked.parameters.items()
            if name != "benchmark"
        ]
    )
    command.__doc__ = f"{about}\n\n{ENDS}"
    return command


def play(
    benchmark: str,
    dataset: str,
    split: str,
    arms: str,
    samples: Samples = None,
    seed: Seed = 123,
    greedy: Greedy = None,
    candidates: Candidates = None,
    temperature: Temperature = None,
    attempts: Attempts = None,
    setting: Setting = None,
    data: Data = None,
    unsafe_exec: UnsafeExec = False,
    concurrency: Concurrency = 16,
    budget_usd: Budget = None,
    output: Output = None,
    as_json: Json = False,
    profile: Profile = None,
    redis_url: RedisUrl = None,
    run_seconds: Seconds = 1800.0,
) -> None:
    """Run a benchmark of a team on the deployment that is found."""
    from loopline.agents.records import JsonObject
    from loopline.bench.datasets import Request
    from loopline.bench.registry import find
    from loopline.bench.session import Asked, show, start
    from loopline.bench.teams.sampling import sampling
    from loopline.runtime.config.key_value_options import key_value_options

    options = sampling(greedy, candidates, temperature, attempts)
    choices: JsonObject = {
        "dataset": dataset,
        "setting": key_value_options("--setting", setting or []),
        "attempts": 1 if attempts is None else attempts,
        "unsafe_exec": unsafe_exec,
    }
    found = find(benchmark)
    ended = start(
        Asked(
            benchmark=found,
            arms=found.arms.parse(arms),
            request=Request(split=split, samples=samples, seed=seed, data=data, choices=choices),
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
