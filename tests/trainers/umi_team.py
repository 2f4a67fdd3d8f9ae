"""A deployment of the profile `umi` with a teacher alongside the models, and runs on it.

Models of random weights do not get far: their planner gives up at once. So there is a second pool,
the simulator's oracle; where it plans, caller and summarizer are asked as well, and where it plays
all three, the runs are solved.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

from loopline.agents.environments.api_worlds import Instance, instances
from loopline.agents.records import PolicyRef, Trajectory
from loopline.agents.roles.umi.settings import UmiOptions
from loopline.bus import BusSettings
from loopline.runtime.client.client import Client
from loopline.runtime.config.settings import load_resolved_file
from tests.runtime.conftest import Deployment

SEED, COUNT = 5, 12
INSTANCES = tuple(instances("train", SEED, COUNT))
SHORTEST = min(
    (instance for instance in INSTANCES if instance.oracle.steps and instance.oracle.answer),
    key=lambda instance: len(instance.oracle.steps),
)
"""Asks caller and summarizer, and few times."""
OPTIONS = UmiOptions(calculator=False, tool_style="signatures")
TEACHER = {"umi_planner": "oracle", "umi_caller": "oracle", "umi_summarizer": "oracle"}
"""It plays every role: the run is solved."""
LED = {"umi_planner": "oracle"}
"""It plans, the others are asked by its plans."""
ROLES = tuple(TEACHER)


def up(deployment: Deployment, model: Path, *overrides: str) -> None:
    """Serve `model` and the oracle. One process has the three roles: fewer to start."""
    deployment.up(
        f"models.umi.model={model}",
        "models.oracle.engine=scripted",
        "models.oracle.model=oracle",
        f'models.oracle.scripted.worlds=[{{"split": "train", "seed": {SEED}, "samples": {COUNT}}}]',
        'workers.gpu.models=["umi", "oracle"]',
        f"workers.planner.roles={list(ROLES)}".replace("'", '"'),
        *(f"workers.{kind}.count=0" for kind in ("caller", "summarizer", "single", "jobs")),
        *overrides,
        profile="umi",
    )


def bus_of(deployment: Deployment) -> BusSettings:
    run = deployment.state.running()
    assert run is not None
    return load_resolved_file(deployment.state.resolved).with_redis_url(run.redis_url).bus


async def ask(
    client: Client, instance: Instance, policies: dict[str, str] | None = None
) -> Trajectory:
    """One run to its end."""
    run = client.new_run(
        instance.task.prompt,
        workflow="umi",
        environment=instance.task.environment,
        instance=instance.task.instance,
        options=OPTIONS.model_dump(mode="json"),
        policies=policies,
    )
    await client.submit(run)
    return await asyncio.wait_for(client.wait(run.id), 60)


def weights_of(trajectory: Trajectory) -> Iterator[tuple[str, PolicyRef]]:
    """Of each call to the models in the making: the role, and which weights answered it."""
    for step in trajectory.steps:
        for call in step.calls:
            if call.policy.name == "umi":
                yield step.agent, call.policy
