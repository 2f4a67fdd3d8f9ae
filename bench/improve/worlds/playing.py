"""Runs of a team in simulated worlds: submits them, and decides whether they ended regularly and
solved their instruction. Runs already in the file are not repeated; runs in flight during a kill
are awaited."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from loopline.agents.environments.api_worlds import Instance
from loopline.agents.records import Outcome, Record, Run, Trajectory
from loopline.agents.roles.umi.transcript import calls_of
from loopline.bench.append_log import AppendLog, read_log
from loopline.bench.errors import OutputError
from loopline.bench.improve.profiles import ROLES
from loopline.bench.improve.sitting import RESUME_COMMAND
from loopline.bench.tools import TEAM_OPTIONS
from loopline.runtime.admitted_runs import AdmittedRuns
from loopline.runtime.client.client import Client
from loopline.runtime.run_driver import RunDriver
from loopline.trainers.improve.asking import TAG

AT_ONCE = 32
WORKFLOW = "umi"
_OVERFLOW = "context_overflow"
"""Failure of a prompt that exceeds the model's context: the model's failure, not a lost run."""


class Played(Record):
    """Result of one instruction."""

    id: str
    """Id of the instance."""
    run: str
    solved: bool
    micro_dollars: int


def new_run(
    client: Client,
    instance: Instance,
    policy: str | None,
    *,
    tags: Mapping[str, str],
    run_id: str,
) -> Run:
    """Create a run with one policy for all roles; None keeps the deployment's policies."""
    return client.new_run(
        instance.instruction,
        workflow=WORKFLOW,
        policies=None if policy is None else dict.fromkeys(ROLES, policy),
        options=TEAM_OPTIONS,
        environment=instance.task.environment,
        instance=instance.task.instance,
        tags=tags,
        run_id=run_id,
    )


def is_lost(trajectory: Trajectory) -> bool:
    """Whether the run was interrupted: it ended neither with the team's answer nor with giving
    up."""
    if trajectory.outcome in (Outcome.ANSWERED, Outcome.GAVE_UP):
        return False
    last = trajectory.steps[-1] if trajectory.steps else None
    return last is None or last.decision.data.get("failure") != _OVERFLOW


def is_solved(trajectory: Trajectory, instance: Instance) -> bool:
    """Whether the run solved its instance, judged as `bench tools --suite worlds` does."""
    if trajectory.outcome not in (Outcome.ANSWERED, Outcome.GAVE_UP):
        return False
    answer = trajectory.answer if trajectory.outcome is Outcome.ANSWERED else None
    return instance.verify(answer, calls_of(trajectory.steps)).solved


async def play(
    client: Client,
    policy: str,
    instances: Sequence[Instance],
    path: Path,
    say: Callable[[str], None],
) -> list[Played]:
    """Play the instances with one policy for all roles; results are in instance order."""
    path.parent.mkdir(parents=True, exist_ok=True)
    played = {line["id"]: Played.model_validate(line) for _, line in read_log(path)}
    driver, places = RunDriver(client, say), asyncio.Semaphore(AT_ONCE)
    runs = AdmittedRuns(
        path.with_suffix(".admitted.jsonl"), resume=RESUME_COMMAND, failure=OutputError
    )
    with AppendLog(path, RESUME_COMMAND) as log, runs:

        async def ask(instance: Instance) -> None:
            async with places:
                run_id = runs.run_id(instance.id)
                trajectory, usage = await driver.finish(
                    lambda: new_run(client, instance, policy, tags={TAG: path.stem}, run_id=run_id)
                )
            entry = Played(
                id=instance.id,
                run=run_id,
                solved=is_solved(trajectory, instance),
                micro_dollars=sum(line.cost_micro_dollars or 0 for line in usage),
            )
            played[instance.id] = entry
            log.append(entry.model_dump(mode="json"))

        async with asyncio.TaskGroup() as group:
            for instance in instances:
                if instance.id not in played:
                    group.create_task(ask(instance))
    return [played[instance.id] for instance in instances]
