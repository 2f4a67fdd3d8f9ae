"""Faults while several scripts share a connection: no caller gets another's answer, the wire sends
nothing twice, and the next script finds a connection."""

from __future__ import annotations

import asyncio

import pytest
from redis.exceptions import RedisError

from loopline.bench.proofs.faults.proxy import Proxy
from loopline.bus import Bus, Finish, StepCommit, scripts
from loopline.bus.delivery import Delivery
from loopline.testing import RedisProcess
from tests.bus.payloads import admit
from tests.bus.serving import ended, serving, until
from tests.bus.test_script_wire import ECHO, SLOW, client_of

COUNT = "return {ARGV[1], redis.call('INCR', KEYS[1])}"
LARGE = "return string.rep(ARGV[1], tonumber(ARGV[2]))"


@pytest.mark.parametrize("share", [0.0, 0.4, 0.9])
async def test_every_script_of_a_cut_off_batch_runs_once_and_answers_or_raises(
    any_server: RedisProcess, share: float
) -> None:
    """The server has carried out all of them, but only part of the answers arrives."""
    async with Proxy(any_server.url) as proxy, client_of(proxy.url) as client:
        await client.eval(ECHO, 0, "open")
        proxy.tear(share=share)
        callers = [client.eval(COUNT, 1, f"wire:{n}", str(n)) for n in range(60)]
        outcomes = await asyncio.gather(*callers, return_exceptions=True)
        counts = await client.mget([f"wire:{n}" for n in range(60)])
        await client.delete(*(f"wire:{n}" for n in range(60)))
    raised = [isinstance(outcome, RedisError) for outcome in outcomes]
    for number, outcome in enumerate(outcomes):
        assert raised[number] or outcome == [str(number).encode(), 1]
    assert all(raised) if share == 0 else any(raised)
    assert raised == sorted(raised), "answers come in the order of their questions"
    assert counts == [b"1"] * 60


async def test_waiting_callers_fail_when_redis_dies_and_later_scripts_reach_the_restarted_server(
    own_server: RedisProcess,
) -> None:
    async with client_of(own_server.url) as client:
        key = "{sw:0}:work:any"
        assert await scripts.call(client, "group", [key], ["workers"]) == 1
        waiting = [asyncio.ensure_future(client.eval(SLOW, 0, n, 60_000_000)) for n in range(20)]
        await asyncio.sleep(0)
        own_server.kill()
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        assert all(isinstance(outcome, RedisError) for outcome in outcomes)
        with pytest.raises(RedisError):
            await client.eval(ECHO, 0, "nobody there")
        own_server.start()
        # The server has lost its scripts: concurrent callers all succeed.
        calls = [scripts.call(client, "group", [f"{key}{n}"], ["workers"]) for n in range(5)]
        assert await asyncio.gather(*calls) == [1] * 5
        await client.flushdb()


async def test_forgotten_scripts_are_sent_again_in_the_middle_of_others(
    any_server: RedisProcess,
) -> None:
    async with client_of(any_server.url) as client:
        keys = [f"{{sw:0}}:work:{n}" for n in range(12)]
        await client.script_flush()
        mixed = [
            scripts.call(client, "group", [key], ["workers"])
            if number % 3
            else client.eval(ECHO, 0, key)
            for number, key in enumerate(keys)
        ]
        answers = await asyncio.gather(*mixed)
        expected = [1 if number % 3 else key.encode() for number, key in enumerate(keys)]
        assert answers == expected
        await client.delete(*keys)


async def test_cancelling_callers_does_not_affect_the_others(any_server: RedisProcess) -> None:
    async with Proxy(any_server.url) as proxy, client_of(proxy.url) as client:
        await client.eval(ECHO, 0, "open")
        asking = [asyncio.ensure_future(client.eval(ECHO, 0, f"{n}")) for n in range(90)]
        await asyncio.sleep(0)
        for task in asking[::3]:
            task.cancel()
        outcomes = await asyncio.gather(*asking, return_exceptions=True)
        for number, outcome in enumerate(outcomes):
            if number % 3:
                assert outcome == f"{number}".encode()
            else:
                assert isinstance(outcome, asyncio.CancelledError)
        assert proxy.accepted == 1


async def test_the_caller_that_opens_the_connection_may_be_cancelled(
    any_server: RedisProcess,
) -> None:
    async with client_of(any_server.url) as client:
        asking = [asyncio.ensure_future(client.eval(ECHO, 0, f"{n}")) for n in range(4)]
        await asyncio.sleep(0)
        asking[0].cancel()
        outcomes = await asyncio.gather(*asking, return_exceptions=True)
        assert isinstance(outcomes[0], asyncio.CancelledError)
        assert outcomes[1:] == [b"1", b"2", b"3"]


async def test_huge_requests_and_answers_pass_among_small_ones(any_server: RedisProcess) -> None:
    huge = b"q" * 20_000_000
    async with Proxy(any_server.url) as proxy, client_of(proxy.url) as client:
        answers = await asyncio.gather(
            client.eval(ECHO, 0, "small"),
            client.eval(ECHO, 0, huge),
            client.eval(ECHO, 0, "behind"),
            client.eval(LARGE, 0, "ab", 10_000_000),
            client.eval(ECHO, 0, "last"),
        )
        assert answers == [b"small", huge, b"behind", b"ab" * 10_000_000, b"last"]
        assert proxy.accepted == 1


async def test_commits_on_a_shared_connection_that_is_reset_are_applied_once(bus: Bus) -> None:
    """The scripts of a failed batch are sent again, and those that already ran return `already`."""

    async def handler(delivery: Delivery) -> None:
        await delivery.commit(
            StepCommit(delivery.envelope.run_id.encode(), finish=Finish("answered"))
        )

    async with Proxy(bus.settings.redis_url) as proxy:
        settings = bus.settings.model_copy(update={"redis_url": proxy.url})
        async with Bus(settings, bus.registry) as wired:
            async with serving(wired, ["planner"], handler, places=16):
                runs: list[str] = []
                for _ in range(12):
                    admitting = [admit(wired) for _ in range(10)]
                    proxy.tear(2, share=0.3)
                    runs += await asyncio.gather(*admitting)
                    proxy.reset()
                for run_id in runs:
                    await ended(bus, run_id)
            await until(lambda: proxy.torn > 10, "answers were cut")
    for run_id in runs:
        state = await bus.run_state(run_id)
        assert state.steps == (run_id.encode(),)
