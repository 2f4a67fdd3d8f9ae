"""Connections that are reset, torn, half-closed, delayed or lead to the wrong server: whatever the
transport reports, the bus treats it as an outage and survives."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
from collections.abc import AsyncGenerator, Callable
from pathlib import Path

import pytest
import uvloop
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError, ResponseError

from loopline.bench.proofs.faults.fleet import delegate_fleet
from loopline.bench.proofs.faults.proxy import Proxy
from loopline.bus import Bus, Delivery, Inbox, connection_pool, live_workers
from loopline.bus.connection_pool import Node
from loopline.runtime.client.client import Client
from loopline.testing import RedisProcess, installed_servers, running_redis
from tests.bus.payloads import Note, admit
from tests.bus.serving import ended, finishing, serving, until
from tests.bus.worker_process import worker_process
from tests.conftest import quick_settings
from tests.workers.processes import scripted_models

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture(params=LOOPS)
def loop_factory(request: pytest.FixtureRequest) -> Callable[[], asyncio.AbstractEventLoop]:
    """uvloop and asyncio raise different errors when a transport is gone."""
    return LOOPS[request.param]


@contextlib.asynccontextmanager
async def client_of(url: str, *, connections: int = 1) -> AsyncGenerator[Redis]:
    client = Redis.from_pool(
        connection_pool.pool(url, max_connections=connections, wait_seconds=5, socket_timeout=5)
    )
    try:
        yield client
    finally:
        await client.aclose(close_connection_pool=True)


def test_a_pooled_connection_that_was_reset_is_reopened(
    any_server: RedisProcess, loop_factory: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    async def main() -> None:
        async with Proxy(any_server.url) as proxy, client_of(proxy.url) as client:
            for _ in range(20):
                assert await client.echo("x") == b"x"  # pyright: ignore
                [pooled] = client.connection_pool._available_connections  # pyright: ignore
                assert _clean(pooled)
                proxy.reset(idle_only=True)
                await until(lambda of=pooled: not _clean(of), "the pool knows of it")
            assert proxy.accepted == 20

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(main())


def _clean(connection: object) -> bool:
    assert isinstance(connection, connection_pool.OwnConnection)
    return connection.clean


def test_every_transport_failure_surfaces_as_a_redis_py_error(
    any_server: RedisProcess, loop_factory: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    """This includes errors in the middle of a command, while connecting, and a stream of
    garbage."""
    source = random.Random(3)
    value = b"v" * 300_000

    async def main() -> None:
        async with Proxy(any_server.url) as proxy, client_of(proxy.url, connections=4) as client:
            raised = 0

            async def talk() -> None:
                nonlocal raised
                for _ in range(60):
                    try:
                        assert await client.echo(value) == value  # pyright: ignore
                    except RedisError:
                        raised += 1

            async def inject() -> None:
                while True:
                    await asyncio.sleep(source.uniform(0, 0.01))
                    blow = source.choice(["reset", "idle", "tear", "half"])
                    if blow == "tear":
                        proxy.tear(share=source.random())
                    elif blow == "half":
                        proxy.half_close()
                    else:
                        proxy.reset(idle_only=blow == "idle")

            injecting = asyncio.create_task(inject())
            await asyncio.gather(*(talk() for _ in range(4)))
            injecting.cancel()
            assert raised
            proxy.tear(0)
            assert await client.echo("x") == b"x"  # pyright: ignore

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(main())


@pytest.mark.parametrize("where", ["StreamWriter.writelines", "StreamReader.read"])
async def test_any_error_of_a_broken_transport_becomes_a_connection_error(
    any_server: RedisProcess, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """A stand-in for uvloop's RuntimeError "the handler is closed"."""

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("unable to perform operation; the handler is closed")

    async with client_of(any_server.url) as client:
        await client.echo("x")  # pyright: ignore[reportGeneralTypeIssues]
        with monkeypatch.context() as patched:
            patched.setattr(f"asyncio.{where}", broken)
            patched.setattr("asyncio.StreamWriter.close", broken)
            with pytest.raises(RedisConnectionError, match="the handler is closed"):
                await client.echo("x")  # pyright: ignore[reportGeneralTypeIssues]
        assert await client.echo("x") == b"x"  # pyright: ignore[reportGeneralTypeIssues]


@pytest.mark.timeout(120)
async def test_runs_finish_despite_resets_torn_replies_and_half_closed_connections(
    any_server: RedisProcess, tmp_path: Path
) -> None:
    """Real workers of every kind: no run is stuck, every payment is recorded, no worker dies."""
    source = random.Random(11)
    async with Proxy(any_server.url) as proxy:
        fleet_settings = quick_settings(proxy.url, lease_seconds=1.0, max_attempts=50)
        models = scripted_models(scripted={"latency_seconds": 0.1})
        fleet = delegate_fleet(5, lambda _: fleet_settings, models, tmp_path)
        direct = fleet_settings.model_copy(update={"redis_url": any_server.url})
        for slot in fleet.slots:
            fleet.start(slot)
        try:
            async with Client.connect(direct) as client:
                names = {slot.name for slot in fleet.slots}
                await until(lambda: _all_ready(client.bus, names), "all ready", within=60)
                runs = [client.new_run("What is 17 * 23 + 4?") for _ in range(10)]

                async def inject() -> None:
                    while True:
                        await asyncio.sleep(source.uniform(0.05, 0.2))
                        match source.choice(["reset", "idle", "tear", "half", "delay"]):
                            case "reset":
                                proxy.reset()
                            case "idle":
                                proxy.reset(idle_only=True)
                            case "tear":
                                proxy.tear(3, share=source.choice([0.0, 0.5]))
                            case "half":
                                proxy.half_close()
                            case _:
                                proxy.delay(source.choice([0.0, 0.02]))

                injecting = asyncio.create_task(inject())
                for run in runs:
                    await client.submit(run)
                    await asyncio.sleep(0.05)
                # Every case contains some faults.
                await until(lambda: proxy.torn >= 4, "replies are torn", within=60)
                injecting.cancel()
                await asyncio.gather(injecting, return_exceptions=True)
                proxy.delay(0)
                proxy.tear(0)
                outcomes = [(await client.wait(run.id)).outcome for run in runs]
                assert [outcome.value for outcome in outcomes] == ["answered"] * len(runs)
                assert fleet.revive() == []
                await fleet.drain()
        finally:
            for slot in fleet.slots:
                fleet.kill(slot)


async def _all_ready(bus: Bus, names: set[str]) -> bool:
    return names <= {worker.name for worker in await live_workers(bus) if worker.state == "ready"}


# A failover behind one address.


@contextlib.asynccontextmanager
async def two_servers(folder: Path) -> AsyncGenerator[tuple[RedisProcess, RedisProcess]]:
    """A primary and its replica."""
    binary = next(iter(installed_servers().values()))
    first, second = _port_options(), _port_options()
    with (
        running_redis(folder / "a", *first, binary=binary) as old,
        running_redis(folder / "b", *second, binary=binary) as new,
    ):
        async with Redis.from_url(new.url) as replica:
            await replica.execute_command("REPLICAOF", "127.0.0.1", first[1])

            async def synced() -> bool:
                replication = await replica.info("replication")
                return replication["master_link_status"] == "up"

            await until(synced, "the replica has its data")
        yield old, new


def _port_options() -> tuple[str, ...]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    return ("--port", str(port), "--bind", "127.0.0.1", "--repl-diskless-sync-delay", "0")


async def fail_over(proxy: Proxy, old: RedisProcess, new: RedisProcess) -> None:
    """Fail over like a proxy with health checks: the new primary first, open connections stay."""
    async with Redis.from_url(old.url) as before, Redis.from_url(new.url) as after:
        port = (await before.config_get("port"))["port"]
        # Wait for all earlier writes: any server would lose the ones that are not yet copied.
        await before.set("last", "write")
        assert await before.wait(1, 20_000) == 1
        await after.execute_command("REPLICAOF", "NO", "ONE")
        proxy.set_target(new.url)
        new_port = (await after.config_get("port"))["port"]
        await before.execute_command("REPLICAOF", "127.0.0.1", new_port)
        assert port != new_port


def folder_of(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("f")  # short enough for a unix socket


async def test_workers_and_clients_move_to_the_new_primary_after_a_failover(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """All open connections lead to the old primary, which answers but refuses each write."""
    async with (
        two_servers(folder_of(tmp_path_factory)) as (old, new),
        Proxy(old.url) as proxy,
    ):
        settings = quick_settings(proxy.url, lease_seconds=2.0)
        with worker_process(settings, "planner", "finish") as worker:
            await worker.heard("ready")
            async with Bus(settings) as bus, Inbox(bus):
                bus.registry.register("note", Note)
                await ended(bus, await admit(bus))
                await fail_over(proxy, old, new)
                for _ in range(5):
                    await ended(bus, await admit(bus))
            assert worker.process.poll() is None


async def test_leases_are_renewed_at_the_new_primary_after_a_failover(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    done = asyncio.Event()
    deliveries: list[Delivery] = []

    async def handler(delivery: Delivery) -> None:
        deliveries.append(delivery)
        await done.wait()
        await finishing(delivery)

    async with (
        two_servers(folder_of(tmp_path_factory)) as (old, new),
        Proxy(old.url) as proxy,
    ):
        settings = quick_settings(proxy.url, lease_seconds=1.0)
        async with Bus(settings) as bus:
            bus.registry.register("note", Note)
            async with serving(bus, ["planner"], handler):
                run_id = await admit(bus)
                await until(lambda: bool(deliveries), "the delivery is held")
                await fail_over(proxy, old, new)
                lease = deliveries[0].lease
                began = asyncio.get_running_loop().time()
                async with Redis.from_url(new.url) as primary:

                    async def young() -> bool:
                        [entry] = await primary.xpending_range(
                            lease.stream, lease.group, "-", "+", 10
                        )
                        later = asyncio.get_running_loop().time() > began + 2.5
                        return later and entry["time_since_delivered"] < 1000

                    await until(young, "it is renewed after its lease would have run out")
                done.set()
                await ended(bus, run_id)
            assert [delivery.lease.count for delivery in deliveries] == [1]


def test_a_failover_invalidates_old_connections_only_once() -> None:
    """The first of many to notice a failover invalidates the old connections and no new ones."""
    node = Node()
    node.left(0)
    node.left(0)
    assert node.generation == 1


@pytest.mark.parametrize(
    ("text", "elsewhere"),
    [
        ("UNBLOCKED force unblock from blocking operation, instance state changed", True),
        ("NOREPLICAS Not enough good replicas to write.", True),
        ("MISCONF Redis is configured to save RDB snapshots", False),
        ("NOGROUP No such key", False),
        ("ERR READONLY is not a word of a code here", False),
    ],
)
def test_error_replies_that_indicate_another_primary_are_recognized(
    text: str, elsewhere: bool
) -> None:
    assert connection_pool.is_not_primary(ResponseError(text)) is elsewhere
