"""The options that `train grpo` has for its loop, and for publishing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

LoopOn = Annotated[
    bool, typer.Option("--loop", help="Roll out on a running deployment, train, publish, again.")
]
Game = Annotated[
    str | None,
    typer.Option(
        metavar="NAME|MODULE:OBJECT",
        help="Of --loop: the environment, by its name or by where its object is.",
    ),
]
Tasks = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Of --loop: tasks of a team of code or mathematics in place of a game, as `bench "
        "tasks` writes them.",
    ),
]
Size = Annotated[
    int | None, typer.Option(help="Of --game: cells along a side; the game's own default.")
]
Difficulty = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=VALUE", help="Of --game: boxes=2, obstacles=0.3, …"),
]
Setting = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=VALUE", help="Of --game: turns=4, brief=true, view=3, …"),
]
Rounds = Annotated[int | None, typer.Option(help="Of --loop: versions to train. 20 without it.")]
Puzzles = Annotated[
    int | None,
    typer.Option(help="Of --loop: puzzles or tasks of a round at first. 64 without it."),
]
MostPuzzles = Annotated[
    int | None,
    typer.Option(
        help="Of --loop: puzzles or tasks of a round until --batch groups have a signal. Four "
        "times --puzzles without it."
    ),
]
Adaptive = Annotated[
    str | None,
    typer.Option(
        metavar="positive|balanced",
        help="Of --loop: sample an observation K at a time, until one sample is a success, or half "
        "of K are of either kind (Reinforce-Ada).",
    ),
]
SamplingRounds = Annotated[
    int | None, typer.Option(help="Of --adaptive: times at most. 4 without it.")
]
Success = Annotated[
    float | None,
    typer.Option(
        help="Of --adaptive: least reward of a success; without it, what solves the task is one, "
        "and of a unit tester a right test."
    ),
]
Temperature = Annotated[float | None, typer.Option(help="Of --loop: of rollouts. 1 without it.")]
MaxTokens = Annotated[
    int | None, typer.Option(help="Of --loop: of one completion. 512 without it.")
]
Instructions = Annotated[
    bool | None,
    typer.Option(
        "--instructions/--no-instructions",
        help="Of --loop: the role's prompt before what it sees; off for models without it.",
        show_default=False,
    ),
]
RunSeconds = Annotated[
    float | None, typer.Option(help="Of --loop: after which a run is given up. 3600 without it.")
]
Publish = Annotated[
    bool, typer.Option(help="Let a running deployment answer with what was trained.")
]
Pool = Annotated[
    str | None,
    typer.Option(
        help="Of --publish and --loop: whose adapters, by the agents' names; none: as the "
        "deployment's [policies] say."
    ),
]
RedisUrl = Annotated[
    str | None,
    typer.Option(help="Of --publish and --loop; none: this machine's deployment."),
]
Profile = Annotated[
    str | None,
    typer.Option(
        "--profile", "-p", help="Of --publish and --loop: with --redis-url, that deployment's."
    ),
]
Wait = Annotated[
    float,
    typer.Option(help="Of --publish and --loop: seconds to wait for workers to load an adapter."),
]
KeepPublished = Annotated[
    int | None,
    typer.Option(
        min=2,
        metavar="ROUNDS",
        help="Of --loop: newest versions that stay on disk and can be chosen by `runtime policies`."
        " 20 without it.",
    ),
]


@dataclass(frozen=True)
class LoopOptions:
    """What was said on the command line; None where nothing was."""

    game: str | None
    tasks: Path | None
    size: int | None
    difficulty: list[str] | None
    setting: list[str] | None
    rounds: int | None
    puzzles: int | None
    most_puzzles: int | None
    adaptive: str | None
    sampling_rounds: int | None
    success: float | None
    temperature: float | None
    max_tokens: int | None
    instructions: bool | None
    run_seconds: float | None

    @property
    def given(self) -> list[str]:
        """The options that were."""
        return [
            f"--{name.replace('_', '-')}" for name, value in vars(self).items() if value is not None
        ]


@dataclass(frozen=True)
class Target:
    """The deployment that is published to."""

    pool: str | None
    redis_url: str | None
    profile: str | None
    """Of the deployment at that URL."""
    wait: float
