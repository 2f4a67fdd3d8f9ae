"""Late rewards: accepted once for each id, however often they are sent."""

from __future__ import annotations

import asyncio

import pytest

from loopline.bus import (
    Bus,
    BusSettings,
    DeploymentChanged,
    LogConsumer,
    MessageTooLarge,
    Overloaded,
    RewardConflict,
    publish_reward,
)
from loopline.bus import rewards as bus_rewards
from loopline.bus.agreement import in_flight, publish_epoch
from loopline.bus.log_consumer import Entry
from tests.bus.payloads import new_run_id
from tests.bus.serving import until


async def bodies(bus: Bus) -> list[bytes]:
    """Entries that wait for the recorder, in all shards."""
    streams = [await bus.redis.xrange(shard.rewards) for shard in bus.keys.all_shards()]
    return [fields[b"reward"] for stream in streams for _, fields in stream]


async def test_a_reward_sent_many_times_at_once_is_accepted_once(bus: Bus) -> None:
    run_id = new_run_id()
    answers = await asyncio.gather(*(publish_reward(bus, run_id, "thumb", b"1") for _ in range(20)))
    assert sorted(answers) == [False] * 19 + [True]
    assert await bodies(bus) == [b"1"]


async def test_a_reward_is_still_known_after_the_recorder_took_it(bus: Bus) -> None:
    run_id, recorded = new_run_id(), list[Entry]()

    async def record(entries: list[Entry]) -> None:
        recorded.extend(entries)

    reader = LogConsumer(bus, bus.keys.shard_of(run_id).rewards, "recorder", record)  # pyright: ignore[reportArgumentType]
    reading = asyncio.create_task(reader.run())
    assert await publish_reward(bus, run_id, "thumb", b"1")

    async def taken() -> bool:
        return bool(recorded) and not await bodies(bus)

    await until(taken, "the reward is recorded and acknowledged")
    assert not await publish_reward(bus, run_id, "thumb", b"1")
    reader.drain()
    await reading
    assert len(recorded) == 1


async def test_a_different_reward_under_the_same_id_is_refused(bus: Bus) -> None:
    run_id = new_run_id()
    assert await publish_reward(bus, run_id, "thumb", b"1")
    with pytest.raises(RewardConflict, match=f"{run_id} has the id 'thumb'"):
        await publish_reward(bus, run_id, "thumb", b"0")
    assert await bodies(bus) == [b"1"]


async def test_rewards_of_two_runs_may_have_the_same_id(bus: Bus) -> None:
    assert await publish_reward(bus, new_run_id(), "thumb", b"1")
    assert await publish_reward(bus, new_run_id(), "thumb", b"0")
    assert sorted(await bodies(bus)) == [b"0", b"1"]


async def test_rewards_are_refused_while_the_recorder_is_far_behind(settings: BusSettings) -> None:
    async with Bus(settings.model_copy(update={"max_unrecorded": 1})) as bus:
        run_id = new_run_id()
        await publish_reward(bus, run_id, "1", b"1")
        with pytest.raises(Overloaded, match=r"1 rewards waiting for the recorder.*later"):
            await publish_reward(bus, run_id, "2", b"1")
        assert not await publish_reward(bus, run_id, "1", b"1"), "a repetition is answered"


async def test_a_run_has_no_more_rewards_than_the_limit(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bus_rewards, "MAX_REWARDS", 2)
    run_id = new_run_id()
    for reward_id in ("1", "2"):
        await publish_reward(bus, run_id, reward_id, b"1")
    with pytest.raises(Overloaded, match=f"2 rewards of {run_id}, the limit is 2"):
        await publish_reward(bus, run_id, "3", b"1")


async def test_a_reward_over_the_size_limit_is_refused(bus: Bus) -> None:
    with pytest.raises(MessageTooLarge, match="limit is 16384"):
        await publish_reward(bus, new_run_id(), "thumb", b"x" * 20_000)
    assert await bodies(bus) == []


async def test_no_reward_is_accepted_while_the_shards_change(bus: Bus) -> None:
    run_id = new_run_id()
    await bus.redis.set(bus.keys.shard_of(run_id).closed, b"", px=10_000)
    with pytest.raises(Overloaded, match="shards is being changed"):
        await publish_reward(bus, run_id, "thumb", b"1")
    assert await bodies(bus) == []


async def test_a_reward_under_outdated_settings_is_refused(bus: Bus) -> None:
    """The reward could end up in a shard that no recorder reads."""
    await publish_epoch(bus.redis, bus.keys.all_shards(), "9" * 15)
    with pytest.raises(DeploymentChanged, match="restart this process"):
        await publish_reward(bus, new_run_id(), "thumb", b"1")
    assert await bodies(bus) == []


async def test_a_reward_that_is_not_recorded_yet_is_in_flight(bus: Bus) -> None:
    """The shards do not change while it waits."""
    await publish_reward(bus, new_run_id(), "thumb", b"1")
    waiting = await in_flight(bus.redis, bus.settings.prefix, bus.settings.shards)
    assert waiting.unrecorded == 1
