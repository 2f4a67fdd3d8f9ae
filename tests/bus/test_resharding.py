"""What ended runs leave on the bus is still there after a change of the number of shards."""

from __future__ import annotations

import pytest

from loopline.bus import Bus, BusSettings, run_ends
from loopline.bus.keys import Keys
from loopline.bus.resharding import reshard
from loopline.bus.threads import advance_thread, claim, read_thread
from tests.bus.payloads import Note, admit
from tests.bus.serving import ended, finishing, serving
from tests.conftest import quick_settings

RUNS = 12


async def end_runs(bus: Bus) -> list[str]:
    """End runs that have callers' keys and threads, and are not announced yet."""
    bus.registry.register("note", Note)
    runs = [await admit(bus) for _ in range(RUNS)]
    async with serving(bus, ["planner"], finishing):
        for run in runs:
            await ended(bus, run)
    for run in runs:
        key = f"key of {run}"
        await bus.redis.set(bus.keys.shard_of(key).idempotency(key), run, px=60_000)
        assert await advance_thread(bus, f"thread of {run}", None, claim(bus, run, ""))
        ends = bus.keys.shard_of(run).ends
        await bus.redis.zadd(ends, {run: 1})
        await bus.redis.pexpire(ends, 60_000)
    for shard in bus.keys.all_shards():
        await bus.redis.delete(shard.trajectories, shard.ledger)  # a recorder has written them
    return runs


async def expect_all(bus: Bus, runs: list[str]) -> None:
    for run in runs:
        state = await bus.run_state(run)
        assert (state.outcome, state.steps) == ("answered", (b'"done"',))
        key = f"key of {run}"
        assert await bus.redis.get(bus.keys.shard_of(key).idempotency(key)) == run.encode()
        head = await read_thread(bus, f"thread of {run}")
        assert head is not None
        assert head.run_id == run
    shards = bus.keys.all_shards()
    listed = [run for shard in shards for run in await bus.redis.zrange(shard.runs(), 0, -1)]
    assert sorted(map(bytes.decode, listed)) == sorted(runs)


async def names(bus: Bus) -> dict[bytes, int]:
    """All keys of the deployment's shards that would outlive the test, with their lives."""
    pattern = f"{{{bus.settings.prefix}:*"
    return {name: await bus.redis.pttl(name) async for name in bus.redis.scan_iter(pattern)}


def with_shards(settings: BusSettings, shards: int) -> BusSettings:
    return quick_settings(settings.redis_url, prefix=settings.prefix, shards=shards)


@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 1), (2, 5), (5, 2)])
async def test_a_deployment_restarted_with_another_number_of_shards_loses_no_ended_run(
    settings: BusSettings, before: int, after: int
) -> None:
    async with Bus(with_shards(settings, before), standing="founder") as bus:
        runs = await end_runs(bus)
    async with Bus(with_shards(settings, after), standing="founder") as bus:
        assert bus.settings.shards == after
        await expect_all(bus, runs)
        claimed = await run_ends.claim(bus, seconds=60, count=100)
        assert sorted(end.run_id for end in claimed) == sorted(runs)
        assert all(life > 0 for life in (await names(bus)).values())
        records = [name for name in await names(bus) if b":run:" in name]
        assert len(records) == RUNS


async def test_a_change_of_the_shards_that_dies_before_the_agreement_changes_nothing(
    settings: BusSettings,
) -> None:
    single, three = with_shards(settings, 1), with_shards(settings, 3)
    async with Bus(single, standing="founder") as bus:
        runs = await end_runs(bus)

        async def die() -> bool:
            raise RuntimeError("killed")

        for shards in (3, 2):
            with pytest.raises(RuntimeError):
                await reshard(bus.redis, bus.keys, Keys(bus.keys.prefix, shards), agree=die)
        await expect_all(bus, runs)
        for run in runs:  # the threads continue, and copies of their earlier heads remain
            head = await read_thread(bus, f"thread of {run}")
            assert await advance_thread(bus, f"thread of {run}", head, claim(bus, run, "earlier"))
    async with Bus(three, standing="founder") as bus:
        await expect_all(bus, runs)
        heads = [await read_thread(bus, f"thread of {run}") for run in runs]
        assert {head.previous for head in heads if head is not None} == {"earlier"}


async def test_nothing_moves_if_another_process_has_agreed_on_something_else(bus: Bus) -> None:
    runs = await end_runs(bus)

    async def refuse() -> bool:
        return False

    assert not await reshard(bus.redis, bus.keys, Keys(bus.keys.prefix, 3), agree=refuse)
    await expect_all(bus, runs)
