"""`bench tasks`: a data set's problems as a file of tasks that a team is trained on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from loopline.bench.commands.run import SamplesOfAny
from loopline.bench.commands.teams import Data, Setting


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("tasks")(tasks)


def tasks(
    dataset: Annotated[
        str,
        typer.Argument(
            help="gsm8k, wordproblems (generated: 60 without --samples), mbpp, mbpp_sanitized, "
            "apps, codecontests."
        ),
    ],
    file: Annotated[Path, typer.Argument(help="JSON lines, a task each; replaced if it is there.")],
    split: Annotated[
        str, typer.Option(help="train; what is kept for measuring is refused.")
    ] = "train",
    samples: SamplesOfAny = None,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Which are drawn.")] = 123,
    setting: Setting = None,
    data: Data = None,
) -> None:
    """Write problems of code or mathematics as a file of tasks. It is for `train grpo --loop
    --tasks` and `train prompts --tasks`. Programs are paid for tests that they are not shown: of
    MBPP, whose assertions `bench code` shows all, the first one is shown and the others are hidden;
    public tests of CodeContests don't count. Hidden tests and gold answers go into the folder where
    this machine's judge looks for them; one elsewhere needs a copy of it."""
    from loopline.agents.records import JsonObject
    from loopline.bench.datasets import Request
    from loopline.bench.teams.training_tasks import load, write
    from loopline.runtime.config.key_value_options import key_value_options
    from loopline.runtime.config.state import StateDirectory
    from loopline.runtime.terminal.pluralize import counted

    choices: JsonObject = {
        "dataset": dataset,
        "setting": key_value_options("--setting", setting or []),
    }
    found = load(Request(split=split, samples=samples, seed=seed, data=data, choices=choices))
    problems = StateDirectory.from_environment().problems
    sha256 = write(found, file, problems)
    typer.echo(
        f"{counted(len(found.items), 'task')} of {found.source} in {file}, sha256 {sha256}; what "
        f"decides them is in {problems}"
    )
