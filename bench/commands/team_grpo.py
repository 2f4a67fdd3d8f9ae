"""`bench team-grpo`: does reinforcement learning pay off for a team of any workflow?"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class _Workflow(StrEnum):
    UMI = "umi"
    DELEGATE = "delegate"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("team-grpo")(team_grpo)


def team_grpo(
    output: Annotated[Path, typer.Argument(help="Folder of policies, results and the report.")],
    workflow: Annotated[_Workflow, typer.Option(help="Team to train.")] = _Workflow.UMI,
    seeds: Annotated[int, typer.Option(min=1, max=100, help="Trainings per method.")] = 5,
    cpu_minutes: Annotated[
        float, typer.Option(min=0.01, help="Computing time per training, on one thread.")
    ] = 20.0,
    split: Annotated[
        str, typer.Option(help="Split to train on, such as unseen_wordings.")
    ] = "train",
    domain: Annotated[
        list[str] | None,
        typer.Option(help="Domain of the questions, such as bank; may be repeated."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help="Model to train instead of the team's own: a folder or a hub id."),
    ] = None,
    dollar_weight: Annotated[
        float, typer.Option(min=0, help="Reward that a run loses per dollar.")
    ] = 0.0,
    tasks: Annotated[int, typer.Option(min=1, help="Tasks per round.")] = 16,
    group_size: Annotated[int, typer.Option(min=2, help="Runs per task.")] = 8,
    temperature: Annotated[
        float, typer.Option(min=0.01, max=5, help="Temperature of the sampled runs.")
    ] = 1.0,
    rank: Annotated[int, typer.Option(min=1, help="LoRA rank.")] = 4,
    learning_rate: Annotated[float, typer.Option(min=1e-9, help="Learning rate.")] = 2e-3,
    minibatch: Annotated[int, typer.Option(min=1, help="Groups per update of a policy.")] = 4,
    look_every: Annotated[int, typer.Option(min=1, help="Rounds between evaluations.")] = 8,
    look_tasks: Annotated[int, typer.Option(min=1, help="Validation tasks per evaluation.")] = 150,
    held_out: Annotated[int, typer.Option(min=1, help="Tasks to measure on.")] = 500,
    jobs: Annotated[
        int, typer.Option(min=1, max=256, help="Trainings to run at once, on one core each.")
    ] = 2,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one line of JSON at the end.")
    ] = False,
) -> None:
    """Teach a team by GRPO and by expert iteration.

    `umi` learns in the simulated worlds, the planner of `delegate` on word problems. Both start
    from the micro models. --split unseen_wordings words every task in ways that these models have
    never seen; the team learns only from its runs, without demonstrations. The version that does
    best on validation tasks plays the held-out tasks. Run it again to resume after a crash or
    Ctrl-C, or to add seeds; finished trainings are not repeated.
    """
    from loopline.bench.errors import UsageError
    from loopline.bench.experiments.team_grpo.cells import SETUPS, TeamSettings
    from loopline.bench.experiments.team_grpo.command import measure
    from loopline.trainers.data.questions import SPLITS, require_domains
    from loopline.trainers.errors import TrainingError

    splits = SPLITS[SETUPS[workflow.value].dataset]
    if split not in splits:
        raise UsageError(f"--split {split}: of {workflow} there are: {', '.join(splits)}")
    domains = tuple(domain or ())
    try:
        require_domains(SETUPS[workflow.value].dataset, split, domains)
    except TrainingError as error:
        raise UsageError(str(error)) from error

    settings = TeamSettings(
        workflow=workflow.value,
        seeds=tuple(range(1, seeds + 1)),
        cpu_minutes=cpu_minutes,
        split=split,
        domains=domains,
        model=model,
        dollar_weight=dollar_weight,
        tasks=tasks,
        group_size=group_size,
        temperature=temperature,
        rank=rank,
        learning_rate=learning_rate,
        minibatch=minibatch,
        look_every=look_every,
        look_tasks=look_tasks,
        held_out=held_out,
    )
    measure(output, settings, jobs=jobs, as_json=as_json)
