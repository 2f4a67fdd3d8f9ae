"""Reading a stream in groups: first stored, then acknowledged, finally trimmed."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from redis.exceptions import TimeoutError as RedisTimeoutError

from loopline.bus import Bus, LogConsumer
from loopline.bus.log_consumer import BatchHandler, Entry
from tests.bus.payloads import admit
from tests.bus.serving import until


async def finished_runs(bus: Bus, count: int) -> list[str]:
    """Runs whose trajectories are on the stream."""
    runs = [await admit(bus) for _ in range(count)]
    for run_id in runs:
        assert await bus.cancel(run_id)
    return runs


@asynccontextmanager
async def reading(
    bus: Bus, group: str, handler: BatchHandler, batch: int = 200
) -> AsyncGenerator[LogConsumer]:
    consumer = LogConsumer(bus, bus.keys.shard(0).trajectories, group, handler, batch=batch)
    task = asyncio.create_task(consumer.run())
    try:
        yield consumer
    except BaseException:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        raise
    consumer.drain()
    await asyncio.wait_for(task, 20)


class Shelf:
    """A handler that keeps its entries."""

    def __init__(self) -> None:
        self.entries: list[str] = []
        self.runs: list[str] = []

    async def __call__(self, entries: Sequence[Entry]) -> None:
        for entry, fields in entries:
            self.entries.append(entry)
            self.runs.append(fields[b"run_id"].decode())


async def length(bus: Bus) -> int:
    return int(await bus.redis.xlen(bus.keys.shard(0).trajectories))


async def test_a_batch_is_acknowledged_only_when_its_handler_has_returned(bus: Bus) -> None:
    working, go_on = asyncio.Event(), asyncio.Event()

    async def handler(entries: Sequence[Entry]) -> None:
        working.set()
        await go_on.wait()

    await finished_runs(bus, 3)
    async with reading(bus, "recorder", handler):
        await working.wait()
        summary = await bus.redis.xpending(bus.keys.shard(0).trajectories, "recorder")
        assert summary["pending"] == 3
        assert await length(bus) == 3
        go_on.set()
    assert await length(bus) == 0


async def test_a_full_disk_keeps_the_batch_until_there_is_room(bus: Bus) -> None:
    shelf = Shelf()
    refusals: list[int] = []

    async def handler(entries: Sequence[Entry]) -> None:
        if len(refusals) < 3:
            refusals.append(len(entries))
            raise OSError(errno.ENOSPC, "No space left on device")
        await shelf(entries)

    runs = await finished_runs(bus, 5)
    async with reading(bus, "recorder", handler):
        await until(lambda: len(shelf.runs) == 5, "all are recorded")
    assert shelf.runs == runs
    assert refusals == [5, 5, 5]
    assert await length(bus) == 0


async def test_a_batch_too_large_for_the_connection_s_timeout_is_split(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    for client in (bus.redis, bus.blocking):

        async def slow(*args: Any, read: Any = client.xreadgroup, **options: Any) -> Any:
            response = await read(*args, **options)
            if response and len(response[0][1]) > 2:  # the server has still delivered them
                raise RedisTimeoutError("Timeout reading from the server")
            return response

        monkeypatch.setattr(client, "xreadgroup", slow)
    shelf = Shelf()
    runs = await finished_runs(bus, 7)
    async with reading(bus, "recorder", shelf, batch=4):
        await until(lambda: len(shelf.runs) == 7, "all are recorded")
    assert shelf.runs == runs
    assert await length(bus) == 0


async def test_only_entries_that_every_group_acknowledged_are_trimmed(bus: Bus) -> None:
    quick, slow = Shelf(), Shelf()
    blocked = asyncio.Event()

    async def handler(entries: Sequence[Entry]) -> None:
        await blocked.wait()
        await slow(entries)

    async with reading(bus, "quick", quick), reading(bus, "slow", handler, batch=4):
        await until(lambda: _groups(bus, 2), "both groups")
        runs = await finished_runs(bus, 10)
        await until(lambda: len(quick.runs) == 10, "the quick group has read all")
        assert await length(bus) == 10
        blocked.set()
        await until(lambda: len(slow.runs) == 10, "the slow group has read all")
        await until(lambda: _length_is(bus, 0), "the stream is trimmed")
    assert quick.runs == slow.runs == runs


async def _groups(bus: Bus, count: int) -> bool:
    key = bus.keys.shard(0).trajectories
    return bool(await bus.redis.exists(key)) and len(await bus.redis.xinfo_groups(key)) == count


async def _length_is(bus: Bus, count: int) -> bool:
    return await length(bus) == count


async def test_a_group_that_has_read_nothing_yet_keeps_everything(bus: Bus) -> None:
    key = bus.keys.shard(0).trajectories
    shelf = Shelf()
    await finished_runs(bus, 4)
    await bus.redis.xgroup_create(key, "late", id="0")
    async with reading(bus, "recorder", shelf):
        await until(lambda: len(shelf.runs) == 4, "one group has read all")
    assert await length(bus) == 4
    late = Shelf()
    async with reading(bus, "late", late):
        pass
    assert late.runs == shelf.runs
    assert await length(bus) == 0


async def test_another_reader_takes_over_the_batch_of_a_dead_one(bus: Bus) -> None:
    """Its name is also removed, so that dead names do not accumulate."""
    key = bus.keys.shard(0).trajectories
    runs = await finished_runs(bus, 3)
    await bus.redis.xgroup_create(key, "recorder", id="0")
    await bus.redis.xreadgroup("recorder", "dead", {key: ">"}, count=2)
    shelf = Shelf()
    async with reading(bus, "recorder", shelf):
        await until(lambda: sorted(shelf.runs) == sorted(runs), "all three are recorded")

        async def name_gone() -> bool:
            consumers = await bus.redis.xinfo_consumers(key, "recorder")
            return b"dead" not in {consumer["name"] for consumer in consumers}

        await until(name_gone, "the dead reader's name is removed")
    assert await length(bus) == 0


async def test_entries_deleted_under_a_reader_do_not_stop_it(bus: Bus) -> None:
    """Deleted entries that stay pending would be offered forever and block new ones."""
    key = bus.keys.shard(0).trajectories
    shelf = Shelf()
    first = asyncio.Event()

    async def handler(entries: Sequence[Entry]) -> None:
        if not first.is_set():
            await bus.redis.xdel(key, *(entry for entry, _ in entries))
            first.set()
            raise OSError(errno.ENOSPC, "No space left on device")
        await shelf(entries)

    await finished_runs(bus, 2)
    async with reading(bus, "recorder", handler):
        await asyncio.wait_for(first.wait(), 10)
        runs = await finished_runs(bus, 2)
        await until(lambda: shelf.runs == runs, "the new ones are read")
    summary = await bus.redis.xpending(key, "recorder")
    assert summary["pending"] == 0


async def test_a_drain_records_the_entries_already_on_the_stream(bus: Bus) -> None:
    shelf = Shelf()
    runs = await finished_runs(bus, 25)
    async with reading(bus, "recorder", shelf, batch=4):
        pass
    assert shelf.runs == runs
