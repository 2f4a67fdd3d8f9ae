"""A second request is sent for a slow one, and the ledger has both."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from loopline.agents.usage import UsageEntry
from loopline.bus import Bus
from loopline.workers.engines.openai.engine import OpenAIEngine
from loopline.workers.engines.scripted.engine import ScriptedEngine
from loopline.workers.engines.settings import ModelSettings
from loopline.workers.gpu import Pool
from loopline.workers.hedging import LEAST, MEASURED, SlowAfter
from loopline.workers.messages import CompletionPayload, calls
from loopline.workers.scripted_api import ScriptedServer, ServerOptions
from tests.bus.payloads import admit
from tests.workers.test_gpu import answer, request_of

MOST = 10_000
"""Micro-dollars: more than two calls can cost."""


@asynccontextmanager
async def hedged(url: str, **fields: object) -> AsyncGenerator[Pool]:
    """A pool that sends a second request early."""
    settings = ModelSettings.model_validate(
        {
            "engine": "openai", "model": "m", "base_url": url, "max_attempts": 1,
            "max_tokens": 100, "price": {"prompt": 1, "completion": 10}, "hedge_after": 0.05,
            **fields,
        }
    )  # fmt: skip
    engine = OpenAIEngine(settings)
    await engine.start()
    try:
        yield Pool("slm", settings, engine)
    finally:
        await engine.close()


def server(**options: object) -> ScriptedServer:
    return ScriptedServer(ServerOptions.model_validate(options))


async def asked(bus: Bus, pool: Pool, *, micro_dollars: int = MOST, stream: bool = False) -> str:
    """Return the run of a request that the pool has answered."""
    run_id = await admit(bus, "other", seconds=600, micro_dollars=micro_dollars)
    delivery = await request_of(bus, run_id, time.time() + 600)
    payload = delivery.payload
    assert isinstance(payload, CompletionPayload)
    delivery.payload = payload.model_copy(update={"stream": stream})
    await pool.handle(delivery)
    return run_id


async def ledger(bus: Bus, run_id: str) -> list[UsageEntry]:
    return [UsageEntry.model_validate_json(line) for line in await bus.usage(run_id)]


async def spent_and_reserved(bus: Bus, run_id: str) -> list[int]:
    counts: list[bytes | None] = await bus.redis.hmget(  # pyright: ignore
        bus.keys.shard_of(run_id).run(run_id), ["spent:micro", "held:micro"]
    )
    return [int(count or 0) for count in counts]


async def test_a_second_request_answers_when_the_first_hangs_and_the_ledger_has_both(
    bus: Bus,
) -> None:
    async with server(faults={"sequence": ["hang"]}) as api, hedged(api.url) as pool:
        run_id = await asked(bus, pool)
        assert api.served.arrivals == 2
    (call,) = calls.validate_json(await answer(bus, run_id))
    assert "89" in call.text
    lost, won = await ledger(bus, run_id)
    assert (lost.hedge, lost.discarded, lost.usage) == ("first", True, None)
    assert lost.unknown is not None
    assert "cancelled in favour of the other" in lost.unknown.why
    assert (won.hedge, won.discarded, won.usage) == ("second", False, call.usage)
    assert len({lost.sent_as, won.sent_as}) == 2
    assert {lost.call_id, won.call_id} == {call.id}
    assert await spent_and_reserved(bus, run_id) == [
        lost.unknown.micro_dollars + call.cost_micro_dollars, 0,
    ]  # fmt: skip


async def test_a_request_that_is_answered_in_time_is_sent_once(bus: Bus) -> None:
    async with server() as api, hedged(api.url, hedge_after=30) as pool:
        run_id = await asked(bus, pool)
        assert api.served.arrivals == 1
    (entry,) = await ledger(bus, run_id)
    assert (entry.hedge, entry.discarded) == ("", False)


async def test_the_first_request_may_win_and_the_second_is_cancelled_and_recorded(bus: Bus) -> None:
    async with server(faults={"sequence": ["ok", "hang"]}, latency_seconds=0.4) as api:
        async with hedged(api.url) as pool:
            run_id = await asked(bus, pool)
        assert api.served.arrivals == 2
    lost, won = sorted(await ledger(bus, run_id), key=lambda entry: not entry.discarded)
    assert (lost.hedge, lost.usage, won.hedge) == ("second", None, "first")
    assert (await spent_and_reserved(bus, run_id))[1] == 0


async def test_a_request_is_not_hedged_without_budget_for_two_calls(bus: Bus) -> None:
    async with server(latency_seconds=0.4) as api, hedged(api.url) as pool:
        run_id = await asked(bus, pool, micro_dollars=2_000)  # one call may reserve over 1,000
        assert api.served.arrivals == 1
    (entry,) = await ledger(bus, run_id)
    assert (entry.hedge, entry.discarded) == ("", False)


async def test_a_stream_is_hedged_until_its_first_text_and_read_once(bus: Bus) -> None:
    async with server(faults={"sequence": ["hang"]}) as api, hedged(api.url) as pool:
        run_id = await asked(bus, pool, stream=True)
        assert api.served.arrivals == 2
    (call,) = calls.validate_json(await answer(bus, run_id))
    await bus.end_run(run_id, "answered", "")
    texts = [fields["text"] async for _, fields in bus.follow(run_id) if "text" in fields]
    assert "".join(texts) == call.text
    assert [entry.hedge for entry in await ledger(bus, run_id)] == ["first", "second"]


async def test_another_pool_answers_at_its_own_price(bus: Bus) -> None:
    spare = ModelSettings.model_validate({"engine": "scripted", "model": "spare"})
    async with server(faults={"sequence": ["hang"]}) as api, hedged(api.url) as pool:
        pool.hedge_with = Pool("spare", spare, ScriptedEngine(spare))
        run_id = await asked(bus, pool)
    (call,) = calls.validate_json(await answer(bus, run_id))
    assert call.policy.name == "spare"
    lost, won = await ledger(bus, run_id)
    assert (lost.policy.name, won.policy.name) == ("slm", "spare")
    assert won.cost_micro_dollars == 0


async def test_the_first_request_still_answers_when_its_hedge_fails(bus: Bus) -> None:
    faults = {"sequence": ["ok", "server_error"]}
    async with server(faults=faults, latency_seconds=0.4) as api, hedged(api.url) as pool:
        run_id = await asked(bus, pool)
        assert api.served.arrivals == 2
    (entry,) = await ledger(bus, run_id)
    assert (entry.hedge, entry.discarded) == ("first", False)


async def test_a_fallback_answers_when_both_requests_fail(bus: Bus) -> None:
    spare = ModelSettings.model_validate({"engine": "scripted", "model": "spare"})
    faults = {"sequence": ["hang", "server_error"]}
    async with (
        server(faults=faults) as api,
        hedged(api.url, timeout_seconds=0.3, fallbacks=["spare"]) as pool,
    ):
        pool.fallbacks = [Pool("spare", spare, ScriptedEngine(spare))]
        run_id = await asked(bus, pool)
    (call,) = calls.validate_json(await answer(bus, run_id))
    assert call.policy.name == "spare"


async def test_a_cancelled_run_leaves_no_hedged_request_running(bus: Bus) -> None:
    faults = {"sequence": ["hang", "hang"]}
    async with server(faults=faults) as api, hedged(api.url) as pool:
        handling = asyncio.create_task(asked(bus, pool))
        await api.served.wait_for_arrivals(2)
        handling.cancel()
        await asyncio.wait({handling})
        others = asyncio.all_tasks() - {asyncio.current_task()}
        assert not [task for task in others if "_lead" in repr(task.get_coro())]


def test_a_percentile_is_undefined_before_enough_measurements() -> None:
    slow = SlowAfter("p90")
    for number in range(LEAST):
        assert slow.seconds(stream=False) is None
        slow.add(float(number), stream=False)
    assert slow.seconds(stream=False) == math.ceil(0.9 * LEAST) - 1
    assert slow.seconds(stream=True) is None, "streams are measured by themselves"


@given(
    times=st.lists(st.floats(0, 1e3), min_size=LEAST, max_size=2 * MEASURED),
    share=st.integers(10, 99),
)
def test_no_more_than_a_percentile_s_share_exceeds_it(times: list[float], share: int) -> None:
    slow = SlowAfter(f"p{share}")
    for seconds in times:
        slow.add(seconds, stream=False)
    latest = times[-MEASURED:]
    limit = slow.seconds(stream=False)
    assert limit in latest
    assert sum(seconds > limit for seconds in latest) <= (1 - share / 100) * len(latest) + 1e-6
    assert sum(seconds < limit for seconds in latest) < share / 100 * len(latest) + 1e-6


@pytest.mark.parametrize(
    "fields",
    [
        {"engine": "scripted", "hedge_after": 1},
        {"engine": "openai", "hedge_with": "spare"},
        {"engine": "openai", "hedge_after": "often"},
        {"engine": "openai", "hedge_after": 0},
    ],
)
def test_invalid_hedge_settings_are_refused(fields: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match="hedge"):
        ModelSettings.model_validate({"model": "m", **fields})
