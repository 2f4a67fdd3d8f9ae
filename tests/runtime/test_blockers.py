"""The reports of `runtime ask` while nothing answers, and the reason at the end of the run."""

from __future__ import annotations

import signal
import socket
from pathlib import Path

import pytest
from pydantic import JsonValue

from loopline.agents.environments.code.problem import CodeQuestion
from loopline.agents.environments.code.team import CodeInstance
from loopline.agents.environments.math_team import MathInstance, MathQuestion
from loopline.agents.environments.puzzle_splits import Split
from loopline.agents.environments.sudoku.generation import instances as sudoku_instances
from loopline.agents.environments.sudoku.instance import SudokuSetting
from loopline.agents.records import Run, Task
from loopline.agents.workflows import policies_for, policy_of, serving_role
from loopline.bus import Bus, WorkerPresence, pool_of
from loopline.bus.presence import beat
from loopline.runtime.client.blockers import list_blockers
from loopline.runtime.client.deployment import Deployment as Found
from loopline.runtime.config import settings as config
from loopline.runtime.config.state import StateDirectory
from loopline.runtime.errors import EXIT_FAILED
from loopline.workers.messages import JUDGE_STREAM, TOOL_STREAM, inference_stream, role_stream
from tests.agents.conversations import a_run
from tests.runtime.conftest import ASKED, LIMIT, Deployment, changes

pytestmark = pytest.mark.timeout(300)

QUESTION = "What is 6 * 7?"


def test_an_unreachable_endpoint_is_reported_while_ask_waits_and_in_the_final_reason(
    deployment: Deployment,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    pools = [
        assignment
        for pool in ("llm", "slm")
        for assignment in (
            f"models.{pool}.base_url=http://127.0.0.1:{port}/v1",
            f"models.{pool}.max_attempts=1",
        )
    ]
    deployment.up("bus.max_attempts=100", *pools, profile="endpoint", kinds=ASKED)
    process = deployment.run("ask", QUESTION, "--seconds", "6")
    assert process.returncode == EXIT_FAILED
    refused = f"unavailable: llm: llm at 127.0.0.1:{port}: no connection"
    assert process.stderr.count(f"a step failed and will be retried: {refused}") == 1
    assert f"its deadline passed; last error: {refused}" in process.stdout


def test_a_broken_gpu_worker_is_reported_while_ask_waits(deployment: Deployment) -> None:
    words = changes(ASKED)
    missing = "models.llm.api_key_env=NOBODY_SETS_THIS"
    assert deployment.run("up", "-d", "-p", "endpoint", *words, "--set", missing).returncode == 1
    asking = deployment.start("ask", QUESTION)
    assert asking.stdout is not None
    lines = [asking.stdout.readline(), asking.stdout.readline()]
    asking.send_signal(signal.SIGINT)
    asking.communicate(timeout=LIMIT)
    assert "no worker serves the pool llm, the pool slm right now" in lines[0]
    assert lines[1].startswith("gpu-1.")
    assert "is broken: exit code 78" in lines[1]
    assert "NOBODY_SETS_THIS is not set; set it to the endpoint's API key" in lines[1]


def a_team_run(task: Task) -> Run:
    policies = policies_for("pair", environment=task.environment)
    return a_run("pair").model_copy(update={"task": task, "policies": policies})


def code_run() -> Run:
    return a_team_run(
        CodeInstance(question=CodeQuestion(id="x", statement="Add."), judged_as="0" * 64).task
    )


def math_run() -> Run:
    return a_team_run(
        MathInstance(question=MathQuestion(id="x", statement="1 + 1?"), judged_as="0" * 64).task
    )


def sudoku_run(**setting: JsonValue) -> Run:
    (instance,) = sudoku_instances(Split.TEST, 1, 1)
    setting_model = SudokuSetting.model_validate(setting)
    return a_team_run(instance.model_copy(update={"setting": setting_model}).task)


async def held_up(bus: Bus, run: Run, state: Path, *streams: str) -> list[str]:
    """The reported blockers of a run whose roles, pools and `streams` are served."""
    roles = {serving_role(run.workflow, agent) for agent in run.policies}
    pools = {pool_of(policy_of(run, agent)) for agent in run.policies}
    stream_names = [*map(role_stream, roles), *map(inference_stream, pools), *streams]
    await beat(bus, WorkerPresence(name="all-1", kind="slm", state="ready", streams=stream_names))
    settings = config.load("petting", environ={})
    return await list_blockers(bus, run, Found(settings, StateDirectory(state), None, "petting"))


@pytest.mark.parametrize(
    "run",
    [code_run(), math_run(), sudoku_run(python=True)],
    ids=lambda run: run.task.environment,
)
async def test_a_missing_judge_is_reported(bus: Bus, run: Run, tmp_path: Path) -> None:
    (notice,) = await held_up(bus, run, tmp_path)
    assert notice.startswith("no worker serves the judge right now")


@pytest.mark.parametrize(
    "run",
    [sudoku_run(), sudoku_run(python=True, team=["plan_agent"])],
    ids=["calls", "plan agent alone"],
)
async def test_a_missing_judge_that_the_run_does_not_need_is_not_reported(
    bus: Bus, run: Run, tmp_path: Path
) -> None:
    assert await held_up(bus, run, tmp_path) == []


async def test_missing_tools_with_pending_calls_are_reported(bus: Bus, tmp_path: Path) -> None:
    (shard, *_) = bus.keys.all_shards()
    await bus.redis.xadd(shard.work(TOOL_STREAM), {"call": "calculate"})
    # The server is shared, so every key that a test leaves on it must expire.
    await bus.redis.expire(shard.work(TOOL_STREAM), 60)
    (notice,) = await held_up(bus, sudoku_run(), tmp_path)
    assert notice.startswith("no worker serves the tools right now")
    assert await held_up(bus, sudoku_run(), tmp_path, TOOL_STREAM) == []


async def test_an_available_judge_is_not_reported(bus: Bus, tmp_path: Path) -> None:
    assert await held_up(bus, code_run(), tmp_path, JUDGE_STREAM) == []
