"""A failing endpoint has fallbacks and is left alone for a while."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from loopline.agents.usage import UsageEntry
from loopline.bus import Bus
from loopline.workers.breaker import Breaker
from loopline.workers.engines.openai.engine import OpenAIEngine
from loopline.workers.engines.scripted.engine import ScriptedEngine
from loopline.workers.engines.settings import ModelSettings
from loopline.workers.gpu import Pool
from loopline.workers.messages import calls
from tests.bus.payloads import admit
from tests.workers.test_gpu import answer, request_of

NOBODY = "http://127.0.0.1:9/v1"


@asynccontextmanager
async def endpoint(**fields: object) -> AsyncGenerator[Pool]:
    """A pool with an unreachable endpoint and a fallback."""
    settings = ModelSettings.model_validate(
        {
            "engine": "openai", "model": "m", "base_url": NOBODY, "max_attempts": 1,
            "price": {"prompt": 1, "completion": 10}, "fallbacks": ["spare"], **fields,
        }
    )  # fmt: skip
    engine = OpenAIEngine(settings)
    await engine.start()
    pool = Pool("slm", settings, engine)
    spare = ModelSettings.model_validate({"engine": "scripted", "model": "spare"})
    pool.fallbacks = [Pool("spare", spare, ScriptedEngine(spare))]
    try:
        yield pool
    finally:
        await engine.close()


async def test_a_fallback_answers_and_the_call_and_the_ledger_name_it(bus: Bus) -> None:
    run_id = await admit(bus, "other", seconds=600, micro_dollars=1_000_000)
    async with endpoint() as pool:
        await pool.handle(await request_of(bus, run_id, time.time() + 600))
    (call,) = calls.validate_json(await answer(bus, run_id))
    assert call.policy.name == "spare"
    (entry,) = map(UsageEntry.model_validate_json, await bus.usage(run_id))
    assert (entry.policy.name, entry.discarded) == ("spare", False)
    reservations = await bus.redis.hmget(  # pyright: ignore
        bus.keys.shard_of(run_id).run(run_id), ["held:micro", "held:tokens"]
    )
    assert reservations == [b"0", b"0"]


async def test_an_endpoint_that_failed_repeatedly_is_not_asked(bus: Bus) -> None:
    async with endpoint(breaker_failures=1, breaker_seconds=600) as pool:
        for _ in range(2):
            run_id = await admit(bus, "other", seconds=600)
            await pool.handle(await request_of(bus, run_id, time.time() + 600))
            (call,) = calls.validate_json(await answer(bus, run_id))
            assert call.policy.name == "spare"
        assert pool.breaker.is_open


def test_a_breaker_admits_one_probe_and_closes_on_its_answer() -> None:
    now = [0.0]
    breaker = Breaker(2, 30.0, lambda: now[0])
    breaker.failed()
    assert breaker.allows()
    breaker.failed()
    assert not breaker.allows()
    now[0] = 31.0
    assert [breaker.allows(), breaker.allows()] == [True, False]
    breaker.answered()
    assert breaker.allows()
