"""Workers that call one endpoint share their knowledge of its failures; without Redis each relies
on its own requests, and reports it."""

from __future__ import annotations

import time

from loopline.bus import Bus
from loopline.bus.circuits import Circuit
from loopline.testing import RedisProcess
from loopline.workers.breaker import Breaker, EndpointBreaker
from loopline.workers.messages import calls
from tests.bus.payloads import admit
from tests.bus.serving import until
from tests.conftest import quick_settings
from tests.workers.test_fallbacks import endpoint
from tests.workers.test_gpu import answer, request_of


def shared(bus: Bus, *, failures: int = 1) -> EndpointBreaker:
    breaker = EndpointBreaker("llm", Breaker(failures, 600))
    breaker.circuit = Circuit(bus, "endpoint", failures=failures, seconds=600)
    return breaker


async def fail(breaker: EndpointBreaker) -> None:
    async with breaker.attempt() as attempt:
        assert attempt is not None
        attempt.outcome = "unavailable"


async def allows(breaker: EndpointBreaker) -> bool:
    async with breaker.attempt() as attempt:
        return attempt is not None


async def test_an_endpoint_that_failed_one_worker_is_not_asked_by_another(bus: Bus) -> None:
    async with (
        endpoint(breaker_failures=1, breaker_seconds=600) as first,
        endpoint(breaker_failures=1, breaker_seconds=600) as second,
    ):
        for pool in (first, second):
            pool.breaker = shared(bus)
            run_id = await admit(bus, "other", seconds=600)
            await pool.handle(await request_of(bus, run_id, time.time() + 600))
            (call,) = calls.validate_json(await answer(bus, run_id))
            assert call.policy.name == "spare"
        assert second.breaker.is_open
        assert second.breaker.state()["failures"] == 1, "it did not ask, so nothing more failed"


async def test_an_answer_after_other_workers_failures_counts_for_all(bus: Bus) -> None:
    first, second = shared(bus, failures=2), shared(bus, failures=2)
    await fail(first)
    async with second.attempt() as attempt:
        assert attempt is not None
        attempt.outcome = ""
    await fail(first)
    assert await allows(second)


async def test_a_result_that_does_not_concern_the_endpoint_leaves_the_breaker_unchanged(
    bus: Bus,
) -> None:
    breaker = shared(bus, failures=2)
    await fail(breaker)
    async with breaker.attempt() as attempt:
        assert attempt is not None
        attempt.outcome = "bad_request"
    await fail(breaker)
    assert not await allows(breaker)


async def test_without_redis_a_worker_relies_on_its_own_requests_and_reports_it(
    own_server: RedisProcess,
) -> None:
    async with Bus(quick_settings(own_server.url)) as bus:
        breaker = shared(bus, failures=2)
        assert (breaker.is_shared, breaker.state()) == (True, {})
        own_server.kill()
        await fail(breaker)
        assert not breaker.is_shared
        assert breaker.state()["trouble"]
        assert await allows(breaker)
        await fail(breaker)
        assert breaker.is_open
        assert not await allows(breaker)
        own_server.start()

        async def is_shared_again() -> bool:
            # The bus did not hear of those failures.
            return await allows(breaker) and breaker.is_shared

        await until(is_shared_again, "the breaker is shared again")
        assert breaker.state() == {}


async def test_an_open_breaker_stays_open_while_redis_is_away(own_server: RedisProcess) -> None:
    async with Bus(quick_settings(own_server.url)) as bus:
        first, second = shared(bus), shared(bus)
        await fail(first)
        assert not await allows(second)
        own_server.kill()
        assert not await allows(second)
        assert second.is_open
        own_server.start()
