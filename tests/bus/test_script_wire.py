"""Scripts that share one connection: every caller gets its own answer, whatever happens to the
others and the connection."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncGenerator, Callable

import pytest
import uvloop
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import DataError, NoScriptError, RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from loopline.bench.proofs.faults.proxy import Proxy
from loopline.bus import Bus, connection_pool, scripts
from loopline.bus.connection_pool import Node
from loopline.bus.script_wire import ScriptingRedis
from loopline.testing import RedisProcess
from tests.bus.eager_process import ASKING, USED, running
from tests.bus.payloads import admit
from tests.bus.serving import ended, until

ECHO = "return ARGV[1]"
SLOW = "local n = 0 for i = 1, tonumber(ARGV[2]) do n = n + i end return ARGV[1]"
LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@contextlib.asynccontextmanager
async def client_of(
    url: str, *, seconds: float = 5, node: Node | None = None
) -> AsyncGenerator[ScriptingRedis]:
    pool = connection_pool.pool(
        url, max_connections=2, wait_seconds=5, node=node, socket_timeout=seconds
    )
    client = ScriptingRedis.from_pool(pool)
    assert isinstance(client, ScriptingRedis)
    try:
        yield client
    finally:
        await client.aclose(close_connection_pool=True)


@pytest.fixture(params=LOOPS)
def loop_factory(request: pytest.FixtureRequest) -> Callable[[], asyncio.AbstractEventLoop]:
    return LOOPS[request.param]


def test_every_caller_gets_its_own_answer_through_resets_and_cancellations(
    any_server: RedisProcess, loop_factory: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    source = random.Random(7)
    raised = answers = 0

    async def main() -> None:
        nonlocal raised, answers
        async with Proxy(any_server.url) as proxy, client_of(proxy.url) as client:

            async def talk(name: int) -> None:
                nonlocal raised, answers
                for index in range(80):
                    text = f"{name}/{index}/".encode() + b"x" * source.randint(0, 60_000)
                    asking = asyncio.ensure_future(client.eval(ECHO, 0, text))
                    if source.random() < 0.2:
                        await asyncio.sleep(source.uniform(0, 0.002))
                        asking.cancel()
                    try:
                        assert await asking == text
                        answers += 1
                    except RedisError:
                        raised += 1
                    except asyncio.CancelledError:
                        pass

            async def inject() -> None:
                while True:
                    await asyncio.sleep(source.uniform(0, 0.02))
                    if source.random() < 0.5:
                        proxy.tear(share=source.random())
                    else:
                        proxy.reset(idle_only=False)

            injecting = asyncio.create_task(inject())
            await asyncio.gather(*(talk(name) for name in range(8)))
            injecting.cancel()
            proxy.tear(0)
            async with asyncio.timeout(10):
                # The next call may be the first to notice the last reset.
                while True:
                    with contextlib.suppress(RedisError):
                        assert await client.eval(ECHO, 0, "after") == b"after"
                        break

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(main())
    assert raised
    assert answers > 200


async def test_a_redis_error_reaches_only_its_caller(any_server: RedisProcess) -> None:
    async with client_of(any_server.url) as client:
        outcomes = await asyncio.gather(
            client.eval(ECHO, 0, "first"),
            client.evalsha("0" * 40, 0),
            client.eval("return redis.call('HGET', KEYS[1])", 1, "k"),
            client.eval("return {1, {ARGV[1]}, false}", 0, "nested"),
            return_exceptions=True,
        )
        assert outcomes[0] == b"first"
        assert isinstance(outcomes[1], NoScriptError)
        assert type(outcomes[2]) is ResponseError
        assert outcomes[3] == [1, [b"nested"], None]
        with pytest.raises(DataError, match="an argument is neither"):
            await client.eval(ECHO, 0, object())


async def test_a_script_that_takes_too_long_times_out_for_all_waiting_callers(
    own_server: RedisProcess,
) -> None:
    async with client_of(own_server.url, seconds=0.3) as client:
        outcomes = await asyncio.gather(
            client.eval(SLOW, 0, "slow", 400_000_000),
            client.eval(ECHO, 0, "behind"),
            return_exceptions=True,
        )
        assert [type(outcome) for outcome in outcomes] == [RedisTimeoutError] * 2
        own_server.kill()
        own_server.start()
        assert await client.eval(ECHO, 0, "again") == b"again"


async def test_a_connection_to_a_server_other_than_the_primary_is_closed(
    any_server: RedisProcess,
) -> None:
    """A caller that waits on that connection still gets its answer."""
    node = Node()
    async with Proxy(any_server.url) as proxy, client_of(proxy.url, node=node) as client:
        assert await client.eval(ECHO, 0, "1") == b"1"
        waiting = asyncio.ensure_future(client.eval(SLOW, 0, "2", 3_000_000))
        await asyncio.sleep(0)
        node.left(node.generation)
        assert await client.eval(ECHO, 0, "3") == b"3"
        assert await waiting == b"2"
        with pytest.raises(ResponseError):
            await client.eval("return redis.error_reply('MASTERDOWN Link is down')", 0)
        assert await client.eval(ECHO, 0, "4") == b"4"
        assert proxy.accepted == 3


@pytest.mark.parametrize("opened", [True, False])
async def test_closing_a_client_raises_in_its_waiting_callers(
    any_server: RedisProcess, opened: bool
) -> None:
    async with Proxy(any_server.url) as proxy, client_of(proxy.url) as client:
        if opened:
            assert await client.eval(ECHO, 0, "1") == b"1"
        proxy.partition()
        waiting = asyncio.ensure_future(client.eval(ECHO, 0, "2"))
        await asyncio.sleep(0)
        await until(lambda: proxy.accepted == 1, "it waits for an answer")
        await client.aclose(close_connection_pool=True)
        proxy.heal()
        with pytest.raises(RedisConnectionError, match="closed"):
            await waiting


async def test_a_run_works_on_a_bus_whose_scripts_share_a_connection(bus: Bus) -> None:
    async with Bus(bus.settings, bus.registry) as wired:
        async with running(wired) as process:
            runs = [await admit(wired, ASKING) for _ in range(20)]
            for run_id in runs:
                await ended(wired, run_id)
            assert sorted(process.paid) == sorted(runs)
            for run_id in runs:
                assert await wired.usage(run_id) == [USED]
        key = wired.keys.all_shards()[0].work("nothing")
        assert await scripts.call(wired.redis, "group", [key], ["workers"]) == 1
