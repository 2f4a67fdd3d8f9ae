"""`bench tasks`: a data set's problems as a file of training tasks for a team."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from loopline.runtime.program import add_command

if TYPE_CHECKING:
    from loopline.bench.commands.options import TaskOptions


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_command(app, tasks, "bench.commands.options:TaskOptions")


def tasks(options: TaskOptions) -> None:
    """Write programming or math problems as training tasks. The output file is for `train grpo loop
    --tasks` and `train prompts --tasks`. Only hidden tests are rewarded: MBPP tasks show the first
    assertion and hide the others (`bench code` shows all of them); public tests of CodeContests
    don't count. Hidden tests and gold answers go into the folder where this machine's judge looks
    for them; a judge on another machine needs a copy of that folder."""
    from loopline.bench.datasets import Request
    from loopline.bench.teams.training_tasks import load, write
    from loopline.runtime.config.state import StateDirectory
    from loopline.runtime.terminal.pluralize import format_count

    file = options.file
    task_set = load(
        Request(
            split=options.split,
            samples=options.samples,
            seed=options.seed,
            data=options.data,
            choices={"dataset": options.dataset, "setting": options.setting},
        )
    )
    problems = StateDirectory.from_environment().problems
    sha256 = write(task_set, file, problems)
    typer.echo(
        f"{format_count(len(task_set.items), 'task')} of {task_set.source} in {file}, sha256 "
        f"{sha256}; hidden tests and gold answers are in {problems}"
    )
