"""The ledger contains every request to an endpoint, even if a worker or a connection died."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from pathlib import Path

import pytest

from loopline.agents.records import Usage
from loopline.agents.usage import UsageEntry, deduplicate_usage
from loopline.bus import Bus, Delivery, RequestError
from loopline.runtime.client.client import Client
from loopline.testing import RedisProcess
from loopline.workers.engines.faults import FaultPlan
from loopline.workers.engines.openai.engine import OpenAIEngine
from loopline.workers.engines.settings import ModelSettings
from loopline.workers.gpu import Pool
from loopline.workers.scripted_api import ScriptedServer, ServerOptions
from loopline.workers.settings import GpuWorkerSettings
from tests.bus.leasing import take
from tests.bus.payloads import admit
from tests.conftest import quick_settings
from tests.workers.engines.endpoints import replying
from tests.workers.processes import BOXED, deployment, spawn, workers_running
from tests.workers.test_gpu import answer, request_of

QUESTION = "What is 12 * 7 + 5?"


def endpoint(url: str, **fields: object) -> ModelSettings:
    return ModelSettings.model_validate(
        {
            "engine": "openai", "model": "m", "base_url": url, "max_attempts": 2,
            "backoff_seconds": 0.001, "price": {"prompt": 1, "completion": 10}, "max_tokens": 100,
            **fields,
        }
    )  # fmt: skip


async def handle(delivery: Delivery, settings: ModelSettings) -> None:
    engine = OpenAIEngine(settings)
    await engine.start()
    try:
        await Pool("slm", settings, engine).handle(delivery)
    finally:
        await engine.close()


async def ledger(bus: Bus, run_id: str) -> list[UsageEntry]:
    return [UsageEntry.model_validate_json(line) for line in await bus.usage(run_id)]


async def test_an_answer_without_usage_is_recorded_as_unknown_with_its_maximum_cost(
    bus: Bus,
) -> None:
    body = b'{"choices": [{"index": 0, "message": {"content": "x"}, "finish_reason": "stop"}]}'
    run_id = await admit(bus, "other", seconds=600)
    async with replying(body) as url:
        await handle(await request_of(bus, run_id, 0), endpoint(url, max_attempts=1))
    with pytest.raises(RequestError, match="usage"):
        await answer(bus, run_id)
    (entry,) = await ledger(bus, run_id)
    assert (entry.usage, entry.cost_micro_dollars, entry.discarded) == (None, None, True)
    assert entry.unknown is not None
    assert "usage" in entry.unknown.why
    # Every token of the prompt has at least one byte in the request.
    assert entry.unknown.prompt > len(QUESTION)
    assert entry.unknown.completion == 100
    assert entry.unknown.micro_dollars == entry.unknown.prompt + 1000


@pytest.mark.parametrize(
    ("fault", "unknown"),
    [
        ("rate_limited", 0), ("server_error", 0), ("hang", 1), ("truncated_stream", 1),
        ("malformed_json", 1),
    ],
)  # fmt: skip
async def test_only_attempts_that_may_have_been_billed_are_recorded(
    bus: Bus, fault: str, unknown: int
) -> None:
    faults = FaultPlan.model_validate({"sequence": (fault,), "retry_after_seconds": 0})
    run_id = await admit(bus, "other", seconds=600)
    async with ScriptedServer(ServerOptions(faults=faults)) as api:
        await handle(await request_of(bus, run_id, 0), endpoint(api.url, timeout_seconds=2))
        assert api.served.arrivals == 2
    entries = await ledger(bus, run_id)
    assert [entry.unknown is not None for entry in entries] == [True] * unknown + [False]
    assert len({entry.sent_as for entry in entries}) == 1 + unknown


async def test_an_unreachable_endpoint_is_not_recorded_as_paid(bus: Bus) -> None:
    run_id = await admit(bus, "other", seconds=600)
    async with replying(b"") as url:
        pass
    await handle(await request_of(bus, run_id, 0), endpoint(url))
    assert await ledger(bus, run_id) == []


async def test_a_slow_worker_later_records_the_usage_of_an_unknown_call(bus: Bus) -> None:
    run_id = await admit(bus, "other", seconds=600)
    first = await request_of(bus, run_id, 0)
    async with ScriptedServer(ServerOptions(latency_seconds=0.2)) as api:
        slow = asyncio.create_task(handle(first, endpoint(api.url)))
        await api.served.wait_for_arrivals(1)
        second = await take(bus, run_id, "second", after=first)
        await second.reply(b"null", store=False)
        assert [entry.unknown is None for entry in await ledger(bus, run_id)] == [False]
        await asyncio.wait({slow})
        assert "taken over" in str(slow.exception())
    entries = await ledger(bus, run_id)
    assert [entry.unknown is None for entry in entries] == [False, True]
    assert len({entry.sent_as for entry in entries}) == 1
    (call_entry,) = deduplicate_usage(entries)
    assert isinstance(call_entry.usage, Usage)
    assert call_entry.discarded


async def test_a_call_lost_with_its_worker_is_recorded_and_repeated_with_the_same_key(
    any_server: RedisProcess, tmp_path: Path
) -> None:
    settings = quick_settings(any_server.url, lease_seconds=1.0)
    async with ScriptedServer(ServerOptions(latency_seconds=1.0)) as api:
        models = {name: endpoint(api.url, model=f"scripted-{name}") for name in ("llm", "slm")}
        workers = deployment(settings, tmp_path / "store", models)
        doomed = GpuWorkerSettings(bus=settings, name="doomed", models=models)
        others = [worker for worker in workers if not isinstance(worker, GpuWorkerSettings)]
        gpu = next(worker for worker in workers if isinstance(worker, GpuWorkerSettings))
        async with (
            workers_running(others, tmp_path / "workers"),
            Client.connect(settings) as client,
        ):
            process = spawn(doomed, tmp_path / "workers")
            run = client.new_run(QUESTION, options=BOXED)
            await client.submit(run)
            await asyncio.wait_for(api.served.wait_for_arrivals(1), 60)
            process.send_signal(signal.SIGKILL)
            process.wait()
            async with workers_running([gpu], tmp_path / "workers"):
                ended = await asyncio.wait_for(client.wait(run.id), 60)
            entries = await client.usage(run.id)
    assert ended.answer == "89"
    unknown = [entry for entry in entries if entry.unknown is not None]
    assert len(unknown) == 1
    # The endpoint's statistics and the ledger contain the same calls, equally often.
    assert Counter(entry.call_id for entry in entries) == api.served.arrivals_by_id
    keys = api.served.arrivals_by_key
    assert sorted(keys.values()) == [1] * (len(keys) - 1) + [2]
