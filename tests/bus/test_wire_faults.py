"""What breaks while several scripts are on one connection: nobody gets another's answer, nothing is
sent a second time by the wire itself, and the next script finds a way."""

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
async def test_of_a_batch_that_is_cut_off_every_script_has_run_once_and_says_so_or_raises(
    any_server: RedisProcess, share: float
) -> None:
    """The server has carried out all of them; of its answers a part arrives."""
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


async def test_who_waits_when_redis_dies_is_told_and_the_next_script_finds_it_started_again(
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
        # It has lost its scripts: callers that come together all get through.
        calls = [scripts.call(client, "group", [f"{key}{n}"], ["workers"]) for n in range(5)]
        assert await asyncio.gather(*calls) == [1] * 5
        await client.flushdb()


async def test_a_server_that_has_forgotten_its_scripts_is_told_them_amid_others(
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


async def test_who_is_cancelled_costs_the_others_nothing(any_server: RedisProcess) -> None:
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


async def test_huge_questions_and_answers_pass_among_small_ones(any_server: RedisProcess) -> None:
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
    """Whatever became of a batch, its scripts are sent again, and those that ran say `already`."""

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
