"""Outages: Redis away, restarted, flushed, full, read-only, or not ours."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import redis

from loopline.bus import (
    Bus,
    BusSettings,
    BusUnavailable,
    Delivery,
    Finish,
    Inbox,
    LogConsumer,
    Outgoing,
    RunEnded,
    StepCommit,
    probe,
    read_content,
)
from loopline.bus.connection import retry_during_outage
from loopline.bus.log_consumer import Entry
from loopline.testing import RedisProcess, installed_servers, running_redis
from tests.bus.payloads import Note, admit, note
from tests.bus.serving import ended, finishing, serving, until
from tests.conftest import quick_settings

STEPS = 6


@pytest.fixture
def stormy(own_server: RedisProcess) -> BusSettings:
    return quick_settings(own_server.url, lease_seconds=2.0, max_attempts=50)


def joined(settings: BusSettings) -> Bus:
    bus = Bus(settings)
    bus.registry.register("note", Note)
    return bus


async def stepping(delivery: Delivery) -> None:
    """A run of `STEPS` steps, each with its own number in the journal."""
    run_id, turn = delivery.envelope.run_id, delivery.envelope.turn
    step = json.dumps(turn).encode()
    if turn == STEPS - 1:
        await delivery.commit(StepCommit(step, finish=Finish("answered")))
    else:
        onward = Outgoing("planner", note(run_id, turn=turn + 1))
        await delivery.commit(StepCommit(step, publish=(onward,)))


async def check_all_ended_once(bus: Bus, runs: list[str]) -> None:
    for run_id in runs:
        await ended(bus, run_id, within=40)
        steps = (await bus.run_state(run_id)).steps
        assert [json.loads(step) for step in steps] == list(range(STEPS))
    entries = await bus.redis.xrange(bus.keys.shard(0).trajectories)
    assert sorted(fields[b"run_id"].decode() for _, fields in entries) == sorted(runs)
    assert await bus.queue_lengths(["planner"]) == {"planner": 0}


async def test_killing_and_restarting_redis_mid_run_loses_and_duplicates_nothing(
    own_server: RedisProcess, stormy: BusSettings
) -> None:
    async with joined(stormy) as bus:
        steps_done = 0

        async def handler(delivery: Delivery) -> None:
            nonlocal steps_done
            await stepping(delivery)
            steps_done += 1

        async with serving(bus, ["planner"], handler):
            runs: list[str] = []
            for storm in range(3):
                runs += [await admit(bus) for _ in range(20)]
                steps_before = steps_done
                await until(
                    lambda steps_before=steps_before: steps_done > steps_before + 10, "work goes on"
                )
                own_server.kill()
                own_server.start()
                assert storm < 3
            await check_all_ended_once(bus, runs)


async def test_runs_survive_a_silent_redis(own_server: RedisProcess, stormy: BusSettings) -> None:
    """A stopped server accepts what fits the socket and answers nothing until it resumes."""
    async with joined(stormy) as bus, serving(bus, ["planner"], stepping):
        run_id = await admit(bus)
        own_server.pause()
        late = asyncio.create_task(admit(bus))
        own_server.resume()
        await check_all_ended_once(bus, [run_id, await late])


async def test_scripts_that_the_server_forgot_are_sent_again(
    own_server: RedisProcess, stormy: BusSettings
) -> None:
    async with joined(stormy) as bus, serving(bus, ["planner"], stepping):
        runs: list[str] = []
        for _ in range(3):
            await bus.redis.script_flush()
            runs.append(await admit(bus))
        await check_all_ended_once(bus, runs)


async def test_workers_serve_newly_admitted_runs_after_a_flush(
    own_server: RedisProcess, stormy: BusSettings
) -> None:
    """NOGROUP: the groups are recreated. Flushed messages are gone, and no caller waits for
    them."""
    outcomes: list[str] = []
    working, go_on = asyncio.Event(), asyncio.Event()

    async def handler(delivery: Delivery) -> None:
        if not go_on.is_set():
            working.set()
            await go_on.wait()
        try:
            await finishing(delivery)
            outcomes.append("ok")
        except Exception as error:
            outcomes.append(type(error).__name__)
            raise

    async with joined(stormy) as bus, serving(bus, ["planner"], handler, places=1):
        await admit(bus)
        await working.wait()
        own_server.flush()
        go_on.set()  # a commit to a missing group takes the only place
        run_id = await admit(bus)
        await ended(bus, run_id)
    assert outcomes[-1] == "ok"
    assert outcomes[0] == "LeaseLost" or len(outcomes) == 1


async def test_a_log_reader_survives_a_flush(own_server: RedisProcess, stormy: BusSettings) -> None:
    """This includes a flush between its handler and its acknowledgement."""
    run_ids: list[str] = []

    async def handler(entries: Sequence[Entry]) -> None:
        if not run_ids:
            own_server.flush()
        run_ids.extend(fields[b"run_id"].decode() for _, fields in entries)

    async with joined(stormy) as bus:
        consumer = LogConsumer(bus, bus.keys.shard(0).trajectories, "recorder", handler)
        task = asyncio.create_task(consumer.run())
        first = await admit(bus)
        await bus.cancel(first)
        await until(lambda: run_ids == [first], "the first")
        second = await admit(bus)
        await bus.cancel(second)
        await until(lambda: run_ids == [first, second], "the second")
        consumer.drain()
        await asyncio.wait_for(task, 20)


async def test_a_request_ends_when_a_flush_removes_its_run(
    own_server: RedisProcess, stormy: BusSettings
) -> None:
    """Workers drop the work of a run that the server does not have, so the waiter checks again
    instead of waiting for the deadline. Once the run is admitted again, it may ask again."""
    executions: list[int] = []

    async def handler(delivery: Delivery) -> None:
        executions.append(1)
        if len(executions) == 1:
            own_server.flush()
        await delivery.reply(b'"42"', store=True)

    async with joined(stormy) as bus, Inbox(bus) as inbox, serving(bus, ["infer"], handler):
        run_id = await admit(bus)
        with pytest.raises(RunEnded, match="Redis does not have the run"):
            await asyncio.wait_for(inbox.request("infer", note(run_id, key="k")), 30)
        again = note(await admit(bus), key="k")
        assert await asyncio.wait_for(inbox.request("infer", again), 30) == b'"42"'


def configure(url: str, **values: str) -> None:
    with redis.Redis.from_url(url) as client:
        for name, value in values.items():
            client.config_set(name.replace("_", "-"), value)


def _oom(server: RedisProcess) -> Callable[[], None]:
    configure(server.url, maxmemory="1")
    return lambda: configure(server.url, maxmemory="0")


def _read_only(server: RedisProcess) -> Callable[[], None]:
    with redis.Redis.from_url(server.url) as client:
        client.replicaof("127.0.0.1", "1")

    def back() -> None:
        with redis.Redis.from_url(server.url) as client:
            client.replicaof("NO", "ONE")

    return back


def _no_replicas(server: RedisProcess) -> Callable[[], None]:
    configure(server.url, min_replicas_to_write="1")
    return lambda: configure(server.url, min_replicas_to_write="0")


def _misconf(server: RedisProcess) -> Callable[[], None]:
    """A snapshot that can't be written stops all writes, like a full disk."""
    with redis.Redis.from_url(server.url) as client:
        client.config_set("save", "3600 1")
        client.set("{x}", "y", px=60_000)
        (server.folder / "dump.rdb").mkdir()
        (server.folder / "dump.rdb" / "full").touch()
        client.bgsave()
        while client.info("persistence")["rdb_last_bgsave_status"] != "err":  # pyright: ignore
            pass

    def back() -> None:
        configure(server.url, stop_writes_on_bgsave_error="no")

    return back


@pytest.mark.parametrize("trouble", [_oom, _read_only, _no_replicas, _misconf])
async def test_no_accepted_run_is_lost_while_the_server_refuses_writes(
    own_server: RedisProcess,
    stormy: BusSettings,
    trouble: Callable[[RedisProcess], Callable[[], None]],
) -> None:
    holding, go_on = asyncio.Event(), asyncio.Event()
    attempts = 0

    async def handler(delivery: Delivery) -> None:
        nonlocal attempts
        holding.set()
        await go_on.wait()
        attempts += 1
        await stepping(delivery)

    async with joined(stormy) as bus, serving(bus, ["planner"], handler):
        runs = [await admit(bus)]
        await holding.wait()
        end = trouble(own_server)
        go_on.set()
        await until(lambda: attempts > 0, "a commit meets the trouble")
        admission = asyncio.create_task(admit(bus))
        refused = bus.redis.set("{probe}", "1", px=1000)  # pyright: ignore
        with pytest.raises(redis.RedisError):
            await refused
        assert not admission.done()
        end()
        runs.append(await asyncio.wait_for(admission, 20))
        await check_all_ended_once(bus, runs)


@pytest.mark.parametrize(
    ("trouble", "says"),
    [
        (_oom, "it is full: raise its maxmemory"),
        (_read_only, "it is a replica: put the address of its primary into redis_url"),
    ],
)
async def test_a_server_that_refuses_writes_is_reported_with_the_remedy(
    own_server: RedisProcess,
    stormy: BusSettings,
    trouble: Callable[[RedisProcess], Callable[[], None]],
    says: str,
) -> None:
    async with joined(stormy) as bus:
        await bus.check_writable()
        end = trouble(own_server)
        with pytest.raises(BusUnavailable, match=says) as caught:
            await bus.check_writable()
        assert f"Redis at {bus.settings.safe_url} accepts no writes" in str(caught.value)
        end()
        await bus.check_writable()


async def test_giving_up_on_a_full_server_reports_the_place_and_the_remedy(
    own_server: RedisProcess, stormy: BusSettings
) -> None:
    async with joined(stormy) as bus:
        end = _oom(own_server)
        pattern = "admission: Redis at here refused.*it is full: raise its maxmemory"
        with pytest.raises(BusUnavailable, match=pattern):
            await retry_during_outage(
                "admission",
                lambda: bus.redis.set("{probe}", "1", px=1000),  # pyright: ignore
                give_up_after=0.0,
                where="at here",
            )
        end()


async def test_reading_a_text_ends_when_the_patience_does(
    own_server: RedisProcess, stormy: BusSettings
) -> None:
    async with Bus(stormy, patience=0.2) as bus:
        own_server.kill()
        with pytest.raises(BusUnavailable, match=r"content: Redis at .* was unreachable"):
            async with asyncio.timeout(10):
                await read_content(bus, "0" * 64)


async def test_an_unreachable_server_is_reported_without_its_password() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = BusSettings(redis_url=f"redis://:hush@127.0.0.1:{port}/0")
    with pytest.raises(BusUnavailable, match=rf"127.0.0.1:{port}.*does not answer") as caught:
        async with Bus(settings):
            raise AssertionError("it started")
    assert "hush" not in str(caught.value)
    assert "runtime doctor" in str(caught.value)


async def test_a_wrong_password_is_reported_with_the_remedy(own_server: RedisProcess) -> None:
    with redis.Redis.from_url(own_server.url) as client:
        client.config_set("requirepass", "right")
        for url in (own_server.url, own_server.url + "&password=wrong"):
            with pytest.raises(BusUnavailable, match=r"refused the password") as caught:
                async with Bus(BusSettings(redis_url=url)):
                    raise AssertionError("it started")
            assert "redis_url" in str(caught.value)
            assert "=wrong" not in str(caught.value)
        async with Bus(BusSettings(redis_url=own_server.url + "&password=right")):
            pass
        client.config_set("requirepass", "")


def test_a_password_with_an_at_sign_is_hidden_completely() -> None:
    url = BusSettings(redis_url="redis://:p@ss@h:1/0").safe_url
    assert url == "redis://:***@h:1/0"


async def test_a_cluster_node_is_refused_without_waiting(tmp_path: Path) -> None:
    binary = next(iter(installed_servers().values()))
    with (
        running_redis(tmp_path, "--cluster-enabled", "yes", binary=binary) as server,
        pytest.raises(BusUnavailable, match="single server"),
    ):
        async with Bus(BusSettings(redis_url=server.url)):
            raise AssertionError("it started")


async def test_the_server_describes_itself(own_server: RedisProcess) -> None:
    async with Bus(quick_settings(own_server.url)) as bus:
        server = await probe(bus.redis)
        assert server.name.lower() == own_server.binary.flavour
        assert server.appendonly
        assert server.durability.startswith("appendonly yes, appendfsync no: a power failure can")


async def test_unknown_persistence_settings_of_a_server_are_not_guessed(
    own_server: RedisProcess,
) -> None:
    with redis.Redis.from_url(own_server.url) as admin:
        admin.execute_command("ACL", "SETUSER", "managed", "on", ">pw", "~*", "+@all", "-config")
    managed = quick_settings(own_server.url.replace("unix://", "unix://managed:pw@"))
    async with Bus(managed) as bus:
        assert (await probe(bus.redis)).durability == (
            "appendonly yes, appendfsync unknown (the server does not allow CONFIG GET)"
        )
    configure(own_server.url, appendonly="no")
    for settings in (managed, quick_settings(own_server.url)):
        async with Bus(settings) as bus:
            assert (await probe(bus.redis)).durability.startswith("appendonly no: a restart loses")


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-lru"])
async def test_a_server_that_evicts_keys_is_refused(own_server: RedisProcess, policy: str) -> None:
    """This includes a policy that evicts only keys with a time to live: every key of the bus has
    one."""
    configure(own_server.url, maxmemory_policy=policy)
    async with Bus(quick_settings(own_server.url)) as bus:
        with pytest.raises(BusUnavailable, match=rf"{policy}.*noeviction"):
            await probe(bus.redis)
