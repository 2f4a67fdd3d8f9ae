"""A run meets an endpoint's faults: worker processes, and a misbehaving server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from loopline.agents.records import Budget, Outcome, Trajectory
from loopline.bus import DeadLetter, dead_letters
from loopline.runtime.client.client import Client
from loopline.testing import RedisProcess
from loopline.workers.engines.faults import FAULT_KINDS, FaultPlan
from loopline.workers.engines.settings import ModelSettings
from loopline.workers.scripted_api import ScriptedServer, ServerOptions
from tests.conftest import quick_settings
from tests.workers.processes import BOXED, deployment, spawn, workers_running

QUESTION = "What is 12 * 7 + 5?"
KEY_VARIABLE = "LOOPLINE_TEST_KEY"


def models_at(url: str, **fields: object) -> dict[str, ModelSettings]:
    """Configure both pools with one endpoint."""
    common: dict[str, object] = {
        "engine": "openai",
        "base_url": url,
        "timeout_seconds": 0.5,
        "max_attempts": 2,
        "backoff_seconds": 0.01,
        **fields,
    }
    return {
        name: ModelSettings.model_validate({**common, "model": f"scripted-{name}"})
        for name in ("llm", "slm")
    }


@asynccontextmanager
async def client_of_workers(
    server: RedisProcess, tmp_path: Path, faults: FaultPlan, **fields: object
) -> AsyncGenerator[tuple[Client, ScriptedServer]]:
    """A deployment whose models come from an endpoint with these faults."""
    settings = quick_settings(server.url, lease_seconds=1.0, max_attempts=3)
    async with ScriptedServer(ServerOptions(faults=faults)) as api:
        workers = deployment(settings, tmp_path / "store", models_at(api.url, **fields))
        async with (
            workers_running(workers, tmp_path / "workers"),
            Client.connect(settings) as client,
        ):
            yield client, api


async def ended(client: Client, *, seconds: float = 60) -> Trajectory:
    run = client.new_run(QUESTION, options=BOXED, budget=Budget(seconds=seconds))
    await client.submit(run)
    return await asyncio.wait_for(client.wait(run.id), 60)


async def letters(client: Client) -> list[DeadLetter]:
    return [letter async for letter in dead_letters.ls(client.bus)]


@pytest.mark.parametrize("fault", [kind for kind in FAULT_KINDS if kind != "missing_usage"])
async def test_a_run_survives_an_endpoint_fault_and_pays_for_each_answer_once(
    any_server: RedisProcess, tmp_path: Path, fault: str
) -> None:
    faults = FaultPlan.model_validate({"sequence": (fault,)})
    async with client_of_workers(any_server, tmp_path, faults) as (client, api):
        trajectory = await ended(client)
        usage = await client.usage(trajectory.run.id)
        assert await letters(client) == []
        assert api.served.arrivals > 1
    calls = [call for step in trajectory.steps for call in step.calls]
    call_ids = [entry.call_id for entry in usage if entry.unknown is None]
    assert sorted(call_ids) == sorted(call.id for call in calls)
    assert (trajectory.outcome, trajectory.answer) == (Outcome.ANSWERED, "89")


async def test_a_repeated_step_asks_its_endpoint_with_the_same_key(
    any_server: RedisProcess, tmp_path: Path
) -> None:
    faults = FaultPlan(sequence=("server_error",))
    async with client_of_workers(any_server, tmp_path, faults, max_attempts=1) as (client, api):
        run = client.new_run(QUESTION, workflow="solo")
        await client.submit(run)
        await asyncio.wait_for(client.wait(run.id), 60)
        assert next(iter(api.served.arrivals_by_key.values())) == 2


async def test_an_answer_without_countable_usage_ends_the_run_with_that_reason(
    any_server: RedisProcess, tmp_path: Path
) -> None:
    faults = FaultPlan(sequence=("missing_usage",))
    async with client_of_workers(any_server, tmp_path, faults) as (client, api):
        trajectory = await ended(client)
        assert api.served.arrivals == 1
    assert trajectory.outcome is Outcome.ERROR
    assert "usage" in str(trajectory.reason)


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("rate_limited", "answered 429"),
        ("server_error", "answered 500"),
        ("malformed_json", "garbage"),
        ("hang", "no complete answer within 0.5 s"),
    ],
)
async def test_a_lasting_fault_ends_the_run_with_its_reason_and_keeps_the_message(
    any_server: RedisProcess, tmp_path: Path, fault: str, says: str
) -> None:
    faults = FaultPlan.model_validate({fault: 1.0})
    async with client_of_workers(any_server, tmp_path, faults) as (client, api):
        trajectory = await ended(client)
        [letter] = await letters(client)
        assert api.url.removesuffix("/v1").removeprefix("http://") in letter.reason
    assert trajectory.outcome is Outcome.ERROR
    for reason in (letter.reason, str(trajectory.reason)):
        assert says in reason
        assert "scripted-llm" in reason
    assert letter.run_id == trajectory.run.id
    assert letter.stream == "role:planner"
    assert letter.envelope


async def test_an_endpoint_that_never_answers_ends_the_run_at_its_deadline(
    any_server: RedisProcess, tmp_path: Path
) -> None:
    async with client_of_workers(any_server, tmp_path, FaultPlan(hang=1.0)) as (client, _):
        trajectory = await ended(client, seconds=0.5)
    assert trajectory.outcome is Outcome.DEADLINE
    assert "deadline" in str(trajectory.reason)


async def test_a_missing_key_is_one_clear_error_and_the_run_resumes_once_it_is_set(
    any_server: RedisProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(KEY_VARIABLE, raising=False)
    settings = quick_settings(any_server.url, lease_seconds=1.0)
    async with ScriptedServer(ServerOptions(require_key="sesame")) as api:
        models = models_at(api.url, api_key_env=KEY_VARIABLE)
        workers = deployment(settings, tmp_path / "store", models)
        async with (
            workers_running(workers, tmp_path / "workers") as processes,
            Client.connect(settings) as client,
        ):
            run = client.new_run(QUESTION, options=BOXED)
            await client.submit(run)
            assert await asyncio.to_thread(processes["gpu"].wait, 30) == 1
            log = (tmp_path / "workers" / "gpu.log").read_text()
            monkeypatch.setenv(KEY_VARIABLE, "sesame")
            processes["gpu"] = spawn(workers[2], tmp_path / "workers")
            trajectory = await asyncio.wait_for(client.wait(run.id), 30)
    assert log.count(f"the environment variable {KEY_VARIABLE} is not set; set it to") == 1
    assert "Traceback" not in log
    assert (trajectory.outcome, trajectory.answer) == (Outcome.ANSWERED, "89")
