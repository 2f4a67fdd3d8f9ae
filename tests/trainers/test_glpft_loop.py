"""The loop closes: runs of a deployment are recorded and trained on, and the trained adapters
answer while the deployment keeps running."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections import Counter
from collections.abc import AsyncGenerator
from itertools import cycle
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from loopline.agents.records import Outcome, Trajectory
from loopline.agents.roles.umi.transcript import calls_of
from loopline.runtime.client.client import Client
from loopline.trainers.glpft.from_scratch import write_new_model
from tests.runtime.conftest import Deployment, until
from tests.runtime.conftest import deployment as deployment

from .tiny_glpft import DATA, SIZE
from .umi_team import COUNT, INSTANCES, LED, ROLES, SHORTEST, TEACHER, ask, bus_of, up, weights_of

pytestmark = pytest.mark.slow


@pytest.fixture
def serving(deployment: Deployment, tmp_path: Path) -> Deployment:
    """Random weights without a published adapter."""
    pytest.importorskip("peft", reason="needs make install")
    write_new_model(DATA, SIZE, 1, tmp_path / "base")
    up(
        deployment,
        tmp_path / "base",
        "models.umi.max_tokens=24",
        # Runs take their time without using the machine.
        "models.oracle.scripted.latency_seconds=0.1",
    )
    return deployment


async def test_a_training_on_recorded_runs_publishes_adapters_that_the_next_runs_use(
    serving: Deployment, tmp_path: Path
) -> None:
    processes = await processes_of(serving)
    async with Client.connect(bus_of(serving)) as client:
        taught = await asyncio.gather(*(ask(client, item, TEACHER) for item in INSTANCES))
        for instance, trajectory in zip(INSTANCES, taught, strict=True):
            answer = trajectory.answer if trajectory.outcome is Outcome.ANSWERED else None
            assert instance.verify(answer, calls_of(trajectory.steps)).solved
        until(lambda: recorded(serving).total() == COUNT, "recording of the solved runs")
        before = [await ask(client, SHORTEST, policies) for policies in (None, LED)]
        async with in_flight(client) as meanwhile:
            output = await train(serving, tmp_path / "base", tmp_path / "out")
            after = [await ask(client, SHORTEST, policies) for policies in (None, LED)]
    assert output.count("serves version 1") == 3
    # Only the model at first, and the roles' adapters from the first run after publication on.
    assert weights(before) == {(role, None, 0) for role in ROLES}
    assert weights(after) == {(role, role.replace("_", "/"), 1) for role in ROLES}
    assert await processes_of(serving) == processes
    ended = [*taught, *before, *meanwhile, *after]
    assert {item.outcome for item in ended} == {Outcome.ANSWERED, Outcome.GAVE_UP}
    until(lambda: recorded(serving).total() >= len(ended), "recording of every run")
    assert recorded(serving) == Counter(item.run.id for item in ended)


def weights(runs: list[Trajectory]) -> set[tuple[str, str | None, int]]:
    """Role, adapter and version of every call."""
    return {(role, ref.adapter, ref.version) for run in runs for role, ref in weights_of(run)}


@contextlib.asynccontextmanager
async def in_flight(client: Client) -> AsyncGenerator[list[Trajectory]]:
    """Four runs at any time until the end of the block; each of them finishes."""
    ended: list[Trajectory] = []
    stop = asyncio.Event()

    async def go_on(first: int) -> None:
        for instance in cycle(INSTANCES[first:]):
            if stop.is_set():
                return
            ended.append(await ask(client, instance, LED))

    async with asyncio.TaskGroup() as group:
        for first in range(4):
            group.create_task(go_on(first))
        try:
            yield ended
        finally:
            stop.set()


async def train(serving: Deployment, base: Path, output: Path) -> str:
    """`train glpft` as a process, on the runs that the deployment recorded; returns its output."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "loopline.trainers.cli", "glpft", output),
        *("--from-store", serving.state.store, "--base", base, "--weights", "lora"),
        *("--rank", "4", "--batch", "8", "--tokens", "4000", "--publish"),
        env=serving.environ,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    text = (await process.communicate())[0].decode()
    assert process.returncode == 0, text
    return text


async def processes_of(serving: Deployment) -> list[tuple[str, int | None, int]]:
    workers: list[dict[str, Any]] = (await asyncio.to_thread(serving.status))["workers"]
    return sorted((worker["name"], worker["pid"], worker["restarts"]) for worker in workers)


def recorded(serving: Deployment) -> Counter[str]:
    """How often each run is in the store."""
    files = sorted((serving.state.store / "trajectories").glob("*.parquet"))
    rows = [row for file in files for row in pq.read_table(file, columns=["run_id"]).to_pylist()]
    return Counter(row["run_id"] for row in rows)
