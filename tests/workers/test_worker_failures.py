"""Workers die and freeze; runs still end, and nothing is paid for twice."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from redis.exceptions import ResponseError

from loopline.agents.environments.environment import AnyEnvironment, Environment
from loopline.agents.environments.plan_path.instance import PlanPathInstance, PlanPathSetting
from loopline.agents.records import Budget, JsonObject, Message, Outcome, Run
from loopline.agents.tools.calculator import calculate
from loopline.bus import BusSettings, dead_letters
from loopline.bus.tasks import end
from loopline.runtime.client.client import Client
from loopline.testing import RedisProcess
from loopline.workers.engines.scripted.script import scripted_reply
from loopline.workers.engines.settings import ModelSettings
from loopline.workers.process import Worker
from loopline.workers.scripted_api import ScriptedServer, ServerOptions
from loopline.workers.settings import GpuWorkerSettings, RoleWorkerSettings
from tests.conftest import quick_settings
from tests.workers.processes import BOXED, deployment, scripted_models, spawn, workers_running

QUESTION = "What is 12 * 7 + 5?"
SLOW = {"scripted": {"latency_seconds": 0.2, "tokens_per_second": 60}}


def settings_for(server: RedisProcess) -> BusSettings:
    return quick_settings(server.url, lease_seconds=1.0)


async def until(condition: Callable[[], Awaitable[bool]], seconds: float = 20) -> None:
    async with asyncio.timeout(seconds):
        while not await condition():  # noqa: ASYNC110 - what we wait for is another process
            await asyncio.sleep(0.01)


async def works_on_something(client: Client, name: str) -> bool:
    """Tell whether the worker's stream has a pending delivery."""
    for pool in ("llm", "slm"):
        key = client.bus.keys.shard(0).work(f"infer:{pool}")
        try:
            consumers = await client.bus.redis.xinfo_consumers(key, "workers")
        except ResponseError:  # the worker is starting and has not created its group yet
            continue
        for consumer in consumers:
            if consumer["name"].decode().startswith(f"{name}-") and consumer["pending"]:
                return True
    return False


async def some_text(client: Client, run: Run) -> bool:
    """Tell whether a model has started to write: its worker is then in the middle of its work."""
    return bool(await client.bus.redis.xlen(client.bus.keys.shard_of(run.id).log(run.id)))


async def text_of_calls(client: Client, run: Run) -> dict[str, str]:
    """Return the text that a follower of the run has read, by call."""
    texts: dict[str, str] = {}
    async for event in client.follow(run.id):
        if event.kind == "restart":
            texts[event.fields["call"]] = event.fields["text"]
        if event.kind == "tokens":
            call = event.fields["call"]
            texts[call] = texts.get(call, "") + event.fields["text"]
    return texts


def question_that_calculates() -> str:
    """A question on which the scripted `solo` asks the calculator before it answers."""
    for number in range(2, 100):
        question = f"What is {number} * 7 + 5?"
        messages = [Message(role="user", content=question)]
        if scripted_reply(messages, [calculate.spec]).calls:
            return question
    raise AssertionError("the script never calculates")


async def test_a_gpu_worker_killed_in_mid_text_is_replaced_without_gap_or_repeat(
    any_server: RedisProcess, tmp_path: Path
) -> None:
    settings = settings_for(any_server)
    workers = deployment(settings, tmp_path / "store", scripted_models(**SLOW))
    async with (
        workers_running(workers, tmp_path / "workers") as processes,
        Client.connect(settings) as client,
    ):
        run = client.new_run(QUESTION, options=BOXED, stream=True)
        await client.submit(run)
        reading = asyncio.create_task(text_of_calls(client, run))
        await until(lambda: some_text(client, run))
        processes["gpu"].send_signal(signal.SIGKILL)
        processes["gpu"].wait()
        processes["gpu"] = spawn(workers[2], tmp_path / "workers")
        trajectory = await asyncio.wait_for(client.wait(run.id), 30)
        read = await reading
    assert (trajectory.outcome, trajectory.answer) == (Outcome.ANSWERED, "89")
    assert read == {call.id: call.text for step in trajectory.steps for call in step.calls}


async def test_a_frozen_gpu_worker_that_wakes_late_neither_answers_nor_bills_a_second_time(
    any_server: RedisProcess, tmp_path: Path
) -> None:
    settings = settings_for(any_server)
    models = scripted_models(scripted={"latency_seconds": 0.2, "tokens_per_second": 20})
    workers = deployment(settings, tmp_path / "store", models)
    async with (
        workers_running(workers, tmp_path / "workers") as processes,
        Client.connect(settings) as client,
    ):
        run = client.new_run(QUESTION, options=BOXED, workflow="solo", stream=True)
        await client.submit(run)
        await until(lambda: some_text(client, run))
        os.kill(processes["gpu"].pid, signal.SIGSTOP)
        second = workers[2].model_copy(update={"name": "second"})
        processes["second"] = spawn(second, tmp_path / "workers")
        trajectory = await asyncio.wait_for(client.wait(run.id), 30)
        os.kill(processes["gpu"].pid, signal.SIGCONT)
        # A drained process has finished everything that it held.
        processes["gpu"].send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(processes["gpu"].wait, 30) == 0
        usage = await client.usage(run.id)
    assert trajectory.outcome is Outcome.ANSWERED
    used = Counter(entry.call_id for entry in usage if not entry.discarded)
    assert used == Counter(call.id for step in trajectory.steps for call in step.calls)


async def test_a_role_worker_killed_between_two_completions_does_not_pay_for_the_first_again(
    any_server: RedisProcess, tmp_path: Path
) -> None:
    settings = settings_for(any_server)
    async with ScriptedServer(ServerOptions(latency_seconds=0.4)) as api:
        model = {"engine": "openai", "base_url": api.url}
        models = {
            name: ModelSettings.model_validate(model | {"model": f"scripted-{name}"})
            for name in ("llm", "slm")
        }
        workers = deployment(settings, tmp_path / "store", models)
        async with (
            workers_running(workers, tmp_path / "workers") as processes,
            Client.connect(settings) as client,
        ):
            run = client.new_run(question_that_calculates(), workflow="solo")
            await client.submit(run)

            async def first_is_answered() -> bool:
                return bool(await client.usage(run.id))

            await until(first_is_answered)
            processes["planner"].send_signal(signal.SIGKILL)
            processes["planner"].wait()
            processes["planner"] = spawn(workers[0], tmp_path / "workers")
            trajectory = await asyncio.wait_for(client.wait(run.id), 30)
            usage = await client.usage(run.id)
        stats = api.served.as_json(listed=False)
    calls = [call for step in trajectory.steps for call in step.calls]
    assert len(calls) >= 2
    assert stats["repeated_requests"] == 0
    used = [entry.usage for entry in usage if entry.usage is not None]
    assert len(used) == len(usage)
    assert stats["prompt_tokens"] == sum(usage_entry.prompt for usage_entry in used)
    assert stats["completion_tokens"] == sum(call.usage.completion for call in calls)


async def test_a_cancelled_run_stops_its_generation(
    any_server: RedisProcess, tmp_path: Path
) -> None:
    settings = settings_for(any_server)
    workers = deployment(
        settings, tmp_path / "store", scripted_models(scripted={"latency_seconds": 60})
    )
    async with (
        workers_running(workers, tmp_path / "workers"),
        Client.connect(settings) as client,
    ):
        run = client.new_run(QUESTION, options=BOXED)
        await client.submit(run)
        await until(lambda: works_on_something(client, "gpu"))
        assert await client.cancel(run.id)
        trajectory = await asyncio.wait_for(client.wait(run.id), 10)

        async def idle() -> bool:
            return not await works_on_something(client, "gpu")

        await until(idle)
    assert trajectory.outcome is Outcome.CANCELLED
    assert trajectory.steps == ()


async def test_a_dead_letter_replayed_after_its_run_s_deadline_leads_to_an_answer(
    any_server: RedisProcess, tmp_path: Path
) -> None:
    settings = settings_for(any_server).model_copy(update={"max_attempts": 1})
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
    model = {"engine": "openai", "model": "away", "base_url": nobody, "max_attempts": 1}
    away = {name: ModelSettings.model_validate(model) for name in ("llm", "slm")}
    store = tmp_path / "store"
    async with Client.connect(settings) as client:
        async with workers_running(deployment(settings, store, away), tmp_path / "first"):
            run = client.new_run(QUESTION, options=BOXED, budget=Budget(seconds=5))
            await client.submit(run)
            assert (await asyncio.wait_for(client.wait(run.id), 30)).outcome is Outcome.ERROR
        [letter] = [dead_letter async for dead_letter in dead_letters.ls(client.bus)]

        async def deadline_passed() -> bool:
            return time.time() > run.deadline

        await until(deadline_passed)
        await dead_letters.replay(client.bus, letter.id)
        async with workers_running(deployment(settings, store), tmp_path / "second"):
            trajectory = await asyncio.wait_for(client.wait(run.id), 30)
    assert (trajectory.outcome, trajectory.answer) == (Outcome.ANSWERED, "89")


async def test_a_worker_that_starts_before_its_redis_waits_for_it(
    own_server: RedisProcess, tmp_path: Path
) -> None:
    settings = settings_for(own_server)
    own_server.stop()
    workers = deployment(settings, tmp_path / "store")
    async with workers_running(workers, tmp_path / "workers") as processes:

        async def all_wait() -> bool:
            logs = [tmp_path / "workers" / f"{name}.log" for name in processes]
            return all("redis away" in log.read_text() for log in logs)

        await until(all_wait)
        own_server.start()
        async with Client.connect(settings) as client:
            run = client.new_run(QUESTION, options=BOXED)
            await client.submit(run)
            trajectory = await asyncio.wait_for(client.wait(run.id), 30)
    assert trajectory.outcome is Outcome.ANSWERED


@pytest.mark.parametrize(
    "settings",
    [
        '{"kind": "rol", "bus": {"redis_url": "redis://:hush@h:1/0"}}',
        '{"kind": "role", "roles": ["slm"], "bus": {"url": "redis://:hush@h:1/0"}}',
        '{"kind": "role", "roles": ["slm"], "redis_url": "redis://:hush@h:1/0"}',
    ],
)
def test_a_settings_error_is_reported_without_secrets(settings: str) -> None:
    command = [sys.executable, "-m", "loopline.workers", "-"]
    process = subprocess.run(command, input=settings, capture_output=True, text=True, timeout=60)
    assert process.returncode == 2
    assert re.search("kind|url", process.stderr)
    assert "hush" not in process.stdout + process.stderr


async def test_a_worker_that_waits_for_redis_exits_on_request(
    own_server: RedisProcess, tmp_path: Path
) -> None:
    settings = settings_for(own_server)
    own_server.stop()
    tool = deployment(settings, tmp_path / "store")[3]
    process = spawn(tool, tmp_path)

    async def waits() -> bool:
        return "redis away" in (tmp_path / "tool.log").read_text()

    await until(waits)
    process.send_signal(signal.SIGTERM)
    assert await asyncio.to_thread(process.wait, 10) == 0


async def test_a_run_whose_environment_raises_ends_and_its_role_worker_continues(
    any_server: RedisProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_for(any_server)
    reset, bad = Environment.reset, (0, 2)

    def faulty(self: AnyEnvironment, instance: JsonObject) -> object:
        if instance["goal"] == [*bad]:
            raise ZeroDivisionError("the goal has no distance")
        return reset(self, instance)

    async with Client.connect(settings) as client:
        first, second = (a_walk(client, goal) for goal in (bad, (1, 2)))
        await client.submit(first)
        monkeypatch.setattr(Environment, "reset", faulty)
        workers = [
            Worker(RoleWorkerSettings(bus=settings, name="roles", roles=("player",))),
            Worker(GpuWorkerSettings(bus=settings, name="gpu", models=scripted_models())),
        ]
        serving = [asyncio.create_task(worker.run()) for worker in workers]
        try:
            broken = await asyncio.wait_for(client.wait(first.id), 30)
            await client.submit(second)
            played = await asyncio.wait_for(client.wait(second.id), 30)
        finally:
            await end(serving)
    assert broken.outcome is Outcome.ERROR
    assert re.search(
        r"the environment 'plan_path' raised ZeroDivisionError while the instance was set up: "
        r"the goal has no distance \(test_worker_failures\.py:\d+, in faulty\)",
        broken.reason or "",
    )
    assert played.outcome is Outcome.FAILED


def a_walk(client: Client, goal: tuple[int, int]) -> Run:
    """A puzzle of one step for a lone plan agent."""
    setting = PlanPathSetting(team=("plan_agent",), turns=1)
    walk = PlanPathInstance(grid=(".....",) * 5, start=(0, 0), goal=goal, setting=setting).task
    return client.new_run(
        walk.prompt, workflow="pair", policies={"plan_agent": "llm"}, options={"candidates": 1},
        environment=walk.environment, instance=walk.instance,
    )  # fmt: skip
