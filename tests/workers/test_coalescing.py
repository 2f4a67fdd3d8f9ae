"""Equal concurrent requests become one call, which one run pays for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from pydantic import ValidationError

from loopline.agents.records import Call, SamplingParams
from loopline.agents.usage import UsageEntry
from loopline.bus import Bus, Delivery, Inbox, RequestError
from loopline.bus.flights import Flights
from loopline.bus.tenants import NO_TENANT, Tenant
from loopline.workers.coalescing import Coalescer
from loopline.workers.engines.openai.engine import OpenAIEngine
from loopline.workers.engines.settings import ModelSettings
from loopline.workers.gpu import Pool
from loopline.workers.messages import CompletionPayload, calls
from loopline.workers.scripted_api import ScriptedServer, ServerOptions
from tests.bus.payloads import admit, note
from tests.bus.serving import until
from tests.workers.test_gpu import request_of

SLOW = 2.0
"""Seconds in which all other callers ask."""


@asynccontextmanager
async def worker(bus: Bus, url: str, **fields: object) -> AsyncGenerator[Pool]:
    """A worker's pool with its own flights, as in another process."""
    settings = ModelSettings.model_validate(
        {
            "engine": "openai", "model": "m", "base_url": url, "max_attempts": 1,
            "max_tokens": 100, "price": {"prompt": 1, "completion": 10},
            "coalesce": "deterministic", **fields,
        }
    )  # fmt: skip
    engine = OpenAIEngine(settings)
    await engine.start()
    pool = Pool("slm", settings, engine)
    pool.coalescer = Coalescer(settings, Flights(bus))
    try:
        yield pool
    finally:
        await engine.close()


async def request(
    bus: Bus, seconds: float = 600, tenant: Tenant = NO_TENANT, /, **changes: object
) -> tuple[str, Delivery]:
    run_id = await admit(bus, "other", seconds=seconds, micro_dollars=10_000, tenant=tenant)
    delivery = await request_of(bus, run_id, time.time() + 600)
    payload = delivery.payload
    assert isinstance(payload, CompletionPayload)
    delivery.payload = payload.model_copy(update=changes)
    delivery.envelope = delivery.envelope.model_copy(update={"reply_key": key_of(run_id)})
    return run_id, delivery


def key_of(run_id: str) -> str:
    """Return the key of its request."""
    return f"{run_id}/0.0/0"


async def entry_of(bus: Bus, run_id: str) -> UsageEntry:
    (line,) = await bus.usage(run_id)
    return UsageEntry.model_validate_json(line)


async def answer(bus: Bus, run_id: str) -> bytes:
    async with Inbox(bus) as inbox:
        return await inbox.request("infer", note(run_id, key=key_of(run_id)))


async def call_of(bus: Bus, run_id: str) -> Call:
    (call,) = calls.validate_json(await answer(bus, run_id))
    return call


async def test_equal_requests_from_several_workers_become_one_call_paid_by_one_run(
    bus: Bus,
) -> None:
    async with (
        ScriptedServer(ServerOptions(latency_seconds=SLOW)) as api,
        worker(bus, api.url) as first,
        worker(bus, api.url) as second,
    ):
        requests = [await request(bus, seed=number) for number in range(6)]
        await asyncio.gather(
            *((first, second)[n % 2].handle(delivery) for n, (_, delivery) in enumerate(requests))
        )
        assert api.served.arrivals == 1
    entries = {run_id: await entry_of(bus, run_id) for run_id, _ in requests}
    (payer,) = [run_id for run_id, entry in entries.items() if not entry.shared_with]
    paid = entries.pop(payer)
    assert paid.usage is not None
    assert paid.cost_micro_dollars
    assert len({(await call_of(bus, run_id)).text for run_id, _ in requests}) == 1
    for run_id, entry in entries.items():
        assert entry.usage is not None
        assert (entry.shared_with, entry.cost_micro_dollars) == (paid.call_id, 0)
        assert (entry.usage.prompt, entry.usage.completion) == (0, 0)
        call = await call_of(bus, run_id)
        assert (call.id, call.cost_micro_dollars, call.usage) == (entry.call_id, 0, entry.usage)
        counts: list[bytes | None] = await bus.redis.hmget(  # pyright: ignore
            bus.keys.shard_of(run_id).run(run_id), ["spent:micro", "held:micro"]
        )
        assert [int(count or 0) for count in counts] == [0, 0]


@pytest.mark.parametrize(
    ("coalesce", "changes", "arrivals"),
    [
        ("deterministic", {"sampling": SamplingParams(temperature=1.0, max_tokens=9)}, 2),
        ("same_body", {"sampling": SamplingParams(temperature=1.0, max_tokens=9)}, 1),
        ("same_body", {"sampling": SamplingParams(temperature=1.0, max_tokens=9, seed=7)}, 1),
        ("deterministic", {"stream": True}, 2),
    ],
)
async def test_sampled_or_streamed_answers_are_shared_only_if_configured(
    bus: Bus, coalesce: str, changes: dict[str, object], arrivals: int
) -> None:
    async with (
        ScriptedServer(ServerOptions(latency_seconds=SLOW)) as api,
        worker(bus, api.url, coalesce=coalesce) as pool,
    ):
        requests = [await request(bus, **changes) for _ in range(2)]
        await asyncio.gather(*(pool.handle(delivery) for _, delivery in requests))
        assert api.served.arrivals == arrivals


@pytest.mark.parametrize(("fields", "arrivals"), [({}, 2), ({"coalesce_tenants": True}, 1)])
async def test_tenants_share_no_call_unless_the_pool_lets_them(
    bus: Bus, fields: dict[str, object], arrivals: int
) -> None:
    async with (
        ScriptedServer(ServerOptions(latency_seconds=SLOW)) as api,
        worker(bus, api.url, **fields) as pool,
    ):
        requests = [
            await request(bus, 600, tenant)
            for tenant in (NO_TENANT, Tenant("acme"))
            for _ in range(2)
        ]
        await asyncio.gather(*(pool.handle(delivery) for _, delivery in requests))
        assert api.served.arrivals == arrivals


async def test_sampled_answers_with_two_seeds_are_not_shared(bus: Bus) -> None:
    hot = SamplingParams(temperature=1.0, max_tokens=9)
    async with (
        ScriptedServer(ServerOptions(latency_seconds=SLOW)) as api,
        worker(bus, api.url, coalesce="same_body") as pool,
    ):
        requests = [await request(bus, sampling=hot, seed=seed) for seed in (1, 2)]
        await asyncio.gather(*(pool.handle(delivery) for _, delivery in requests))
        assert api.served.arrivals == 2


async def test_a_request_that_comes_after_the_answer_makes_its_own_call(
    bus: Bus,
) -> None:
    async with ScriptedServer(ServerOptions()) as api, worker(bus, api.url) as pool:
        for _ in range(2):
            _, delivery = await request(bus)
            await pool.handle(delivery)
        assert api.served.arrivals == 2


async def test_each_request_makes_its_own_call_when_the_shared_one_fails(bus: Bus) -> None:
    options = ServerOptions.model_validate({"faults": {"sequence": ["hang"]}})
    async with ScriptedServer(options) as api, worker(bus, api.url) as pool:
        requests = [await request(bus) for _ in range(3)]
        handling = asyncio.gather(*(pool.handle(delivery) for _, delivery in requests))
        await until(lambda: waiting(pool) == 2, "two requests wait for the third")
        await api.served.wait_for_arrivals(1)
        api.end_hanging()
        await handling
        assert api.served.arrivals == 3
    lines = [line for run_id, _ in requests for line in await bus.usage(run_id)]
    entries = [UsageEntry.model_validate_json(line) for line in lines]
    assert [entry.shared_with for entry in entries] == ["", ""], "the failed one cost nothing"


async def test_another_request_leads_when_the_first_one_is_cancelled(bus: Bus) -> None:
    options = ServerOptions.model_validate({"faults": {"sequence": ["hang"]}})
    async with ScriptedServer(options) as api, worker(bus, api.url) as pool:
        _, first = await request(bus)
        leading = asyncio.create_task(pool.handle(first))
        await api.served.wait_for_arrivals(1)
        second_run, second = await request(bus)
        following = asyncio.create_task(pool.handle(second))
        await until(lambda: waiting(pool) == 1, "the second waits for the first")
        leading.cancel()
        await following
    assert "89" in (await call_of(bus, second_run)).text
    assert (await entry_of(bus, second_run)).shared_with == ""


async def test_a_waiting_request_ends_at_its_own_deadline(bus: Bus) -> None:
    options = ServerOptions.model_validate({"faults": {"sequence": ["hang"]}})
    async with ScriptedServer(options) as api, worker(bus, api.url) as pool:
        _, first = await request(bus)
        leading = asyncio.create_task(pool.handle(first))
        await api.served.wait_for_arrivals(1)
        run_id, late = await request(bus, 1.0)
        await pool.handle(late)
        with pytest.raises(RequestError) as caught:
            await answer(bus, run_id)
        assert caught.value.kind == "deadline"
        leading.cancel()
        await asyncio.wait({leading})
    assert await bus.usage(run_id) == []


def waiting(pool: Pool) -> int:
    """Number of requests that wait for another one's answer."""
    assert pool.coalescer is not None
    watches = pool.coalescer._flights._watches  # pyright: ignore[reportPrivateUsage]
    return sum(watch.waiters for watch in watches.values())


def test_requests_to_a_local_model_are_not_coalesced() -> None:
    with pytest.raises(ValidationError, match="coalesce is for engine = 'openai'"):
        ModelSettings(engine="scripted", model="m", coalesce="same_body")
