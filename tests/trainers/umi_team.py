"""A deployment of the profile `umi` with a teacher in addition to the models, and runs on it.

Models with random weights do not get far: their planner gives up at once. The second pool is
therefore the simulator's oracle: if it plans, caller and summarizer are asked as well, and if it
plays all three roles, the runs are solved.
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
"""An instruction that asks caller and summarizer, but only a few times."""
OPTIONS = UmiOptions(calculator=False, tool_style="signatures")
TEACHER = {"umi_planner": "oracle", "umi_caller": "oracle", "umi_summarizer": "oracle"}
"""The oracle plays every role: the run is solved."""
LED = {"umi_planner": "oracle"}
"""The oracle plans, and its plans ask the others."""
ROLES = tuple(TEACHER)


def up(deployment: Deployment, model: Path, *overrides: str) -> None:
    """Serve `model` and the oracle. One process runs the three roles, so fewer have to start."""
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
    """For each call of the models in training: the role, and the weights that answered it."""
    for step in trajectory.steps:
        for call in step.calls:
            if call.policy.name == "umi":
                yield step.agent, call.policy
