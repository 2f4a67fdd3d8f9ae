"""`umi` through real worker processes, one per role, on the scripted engine."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from pathlib import Path

from loopline.agents.records import Outcome, Run
from loopline.bus import BusSettings
from loopline.runtime.client.client import Client
from loopline.testing import RedisProcess
from loopline.workers.engines.settings import ModelSettings
from loopline.workers.settings import (
    GpuWorkerSettings,
    RoleWorkerSettings,
    ToolWorkerSettings,
    WorkerBase,
)
from tests.conftest import quick_settings
from tests.workers.processes import spawn, workers_running

ROLES = ("umi_planner", "umi_caller", "umi_summarizer")


def team(bus: BusSettings) -> dict[str, WorkerBase]:
    """A worker for each role, one for their shared model, one for tools."""
    model = ModelSettings.model_validate(
        {"engine": "scripted", "model": "scripted", "scripted": {"latency_seconds": 0.15}}
    )
    return {
        **{role: RoleWorkerSettings(bus=bus, name=role, roles=(role,)) for role in ROLES},
        "gpu": GpuWorkerSettings(bus=bus, name="gpu", models={"umi": model}),
        "tool": ToolWorkerSettings(bus=bus, name="tool"),
    }


async def test_killing_a_role_worker_loses_nothing_and_pays_for_nothing_twice(
    any_server: RedisProcess, tmp_path: Path
) -> None:
    settings = quick_settings(any_server.url, lease_seconds=1.0)
    workers = team(settings)
    async with (
        workers_running(list(workers.values()), tmp_path / "workers") as processes,
        Client.connect(settings, dict.fromkeys(ROLES, "umi")) as client,
    ):

        async def kill(role: str, run: Run, steps: int) -> None:
            """Wait until the role has the step after its first `steps` in hand."""
            async with asyncio.timeout(20):
                while len(await client.steps(run.id)) < steps:  # noqa: ASYNC110 - by another process
                    await asyncio.sleep(0.005)
            processes[role].send_signal(signal.SIGKILL)
            processes[role].wait()
            processes[role] = spawn(workers[role], tmp_path / "workers")

        run = client.new_run("What is 12 * 7 + 5?", workflow="umi")
        await client.submit(run)
        await kill("umi_caller", run, 1)
        await kill("umi_planner", run, 2)
        trajectory = await asyncio.wait_for(client.wait(run.id), 30)
        usage = await client.usage(run.id)
    assert (trajectory.outcome, trajectory.answer) == (Outcome.ANSWERED, "The answer is 89.")
    planner, caller, summarizer = ROLES
    assert [step.agent for step in trajectory.steps] == [
        planner, caller, planner, caller, planner, summarizer,
    ]  # fmt: skip
    called = [step.decision.data for step in trajectory.steps if step.agent == caller]
    assert called == [
        {"name": "calculate", "arguments": {"expression": "12 * 7"}},
        {"name": "calculate", "arguments": {"expression": "84 + 5"}},
    ]
    assert Counter(entry.call_id for entry in usage) == Counter(
        call.id for step in trajectory.steps for call in step.calls
    )
