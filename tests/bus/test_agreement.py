"""One agreement for a deployment: the first process writes it, the others adopt it or are
refused."""

from __future__ import annotations

import asyncio

import pytest

from loopline.bus import (
    Bus,
    BusSettings,
    DeploymentChanged,
    DeploymentMismatch,
    Overloaded,
    WorkerPresence,
)
from loopline.bus.agreement import Standing, in_flight, publish_epoch, replace
from loopline.bus.presence import beat
from tests.bus.payloads import Note, admit, note
from tests.bus.serving import ended, finishing, serving, until
from tests.bus.worker_process import worker_process
from tests.conftest import quick_settings


def other(settings: BusSettings, **named: object) -> BusSettings:
    """Settings of a process that knows where the bus is and sets only these values."""
    return BusSettings.model_validate(
        {"redis_url": settings.redis_url, "prefix": settings.prefix, **named}
    )


async def test_a_process_without_explicit_settings_adopts_those_of_the_first(bus: Bus) -> None:
    async with Bus(other(bus.settings)) as joined:
        assert joined.settings.shared == bus.settings.shared
        assert joined.settings.lease_seconds == 0.6
        assert joined.agreement == bus.agreement


@pytest.mark.parametrize("standing", ["guest", "worker", "founder"])
@pytest.mark.parametrize(
    ("name", "value"), [("shards", 4), ("lease_seconds", 2.0), ("max_attempts", 9)]
)
async def test_a_process_with_a_conflicting_setting_is_refused_and_shown_both_values(
    bus: Bus, standing: Standing, name: str, value: float
) -> None:
    beating = asyncio.create_task(_beating(bus))
    named = other(bus.settings, **{name: value})
    with pytest.raises(DeploymentMismatch) as caught:
        async with Bus(named, standing=standing):
            pass
    beating.cancel()
    message = str(caught.value)
    assert f"bus.{name} is {getattr(bus.settings, name)}" in message
    assert f"this process sets {value}" in message
    assert ("`runtime shards 4`" if name == "shards" else "`runtime down`") in message


async def _beating(bus: Bus) -> None:
    while True:
        await beat(bus, WorkerPresence(name="slm-1", kind="slm"))
        await asyncio.sleep(0.1)


async def test_when_many_join_at_once_all_follow_one_of_them(settings: BusSettings) -> None:
    joining = [Bus(other(settings, max_attempts=n)) for n in range(1, 9)]
    results = await asyncio.gather(*(bus.start() for bus in joining), return_exceptions=True)
    joined = [bus for bus, result in zip(joining, results, strict=True) if result is None]
    assert len(joined) == 1
    assert sum(isinstance(result, DeploymentMismatch) for result in results) == 7
    await asyncio.gather(*(bus.close() for bus in joining))


async def test_a_deployment_without_processes_restarts_with_its_founder_s_settings(
    settings: BusSettings,
) -> None:
    async with Bus(other(settings, shards=4, lease_seconds=3)) as bus:
        before = bus.agreement
    async with Bus(other(settings), standing="founder") as bus:
        assert (bus.settings.shards, bus.settings.lease_seconds) == (1, 15.0)
        assert bus.agreement.epoch > before.epoch
    async with Bus(other(settings, lease_seconds=3), standing="worker") as bus:
        assert (bus.settings.shards, bus.settings.lease_seconds) == (1, 3.0)


async def test_a_killed_worker_does_not_lock_the_settings(settings: BusSettings) -> None:
    with worker_process(settings) as doomed:
        await doomed.heard("ready")
    async with Bus(settings) as bus:
        await beat(bus, WorkerPresence(name="killed", kind="slm"))
    async with Bus(other(settings, lease_seconds=3), standing="founder") as bus:
        assert bus.settings.lease_seconds == 3


async def test_runs_in_flight_keep_their_shards_when_all_workers_are_gone(bus: Bus) -> None:
    runs = [await admit(bus) for _ in range(8)]
    with pytest.raises(DeploymentMismatch, match=r"bus.shards is 1 .* sets 4 \(it holds 8 runs"):
        async with Bus(other(bus.settings, shards=4), standing="founder"):
            pass
    async with Bus(other(bus.settings), standing="founder") as restarted:
        restarted.registry.register("note", Note)
        assert restarted.settings.shards == 1
        async with serving(restarted, ["planner"], finishing):
            for run in runs:
                await ended(restarted, run)


async def test_admission_under_outdated_settings_is_refused(settings: BusSettings) -> None:
    async with Bus(settings) as client, Bus(settings) as command:
        assert not await in_flight(command.redis, settings.prefix, 1)
        shared = {**command.agreement.shared, "shards": 4}
        assert await replace(command.redis, command.keys, command.agreement.epoch, shared)
        async with Bus(other(settings)) as joined:
            joined.registry.register("note", Note)
            assert joined.settings.shards == 4
            with pytest.raises(DeploymentChanged, match="restart this process"):
                await admit(client)
            await until(lambda: client.changed is not None, "it has learned of it")
            runs = [await admit(joined) for _ in range(12)]
            async with serving(joined, ["planner"], finishing):
                for run in runs:
                    await ended(joined, run)


async def test_no_run_is_admitted_while_the_shards_change(bus: Bus) -> None:
    await bus.redis.set(bus.keys.shard(0).closed, b"", px=10_000)
    with pytest.raises(Overloaded, match="shards"):
        await admit(bus)


async def test_an_old_epoch_does_not_come_back(bus: Bus) -> None:
    await publish_epoch(bus.redis, bus.keys.all_shards(), "000000000000001-aaaaaaaa")
    await admit(bus)


async def test_a_message_that_belongs_to_another_shard_is_left_unserved(
    settings: BusSettings,
) -> None:
    four = quick_settings(settings.redis_url, shards=4)
    async with Bus(four) as bus:
        bus.registry.register("note", Note)
        run_id = next(
            run_id
            for run_id in map("run-{}".format, range(100))
            if bus.keys.shard_of(run_id).index == 2
        )
        stream = bus.keys.shard(0).work("planner")
        async with serving(bus, ["planner"], finishing) as consumer:
            await bus.redis.xadd(stream, {"e": note(run_id).to_json()})
            await bus.redis.pexpire(stream, 60_000)

            async def left() -> bool:
                groups = await bus.redis.xinfo_groups(stream)
                return [group["pending"] for group in groups] == [1] and consumer.busy == 0

            await until(left, "it was looked at and left")
            assert await bus.redis.xlen(stream) == 1


async def test_running_processes_rewrite_the_agreement_after_a_flush(bus: Bus) -> None:
    await bus.redis.delete(bus.keys.deployment)

    async def there() -> bool:
        return bool(await bus.redis.exists(bus.keys.deployment))

    await until(there, "it is written again")
    async with Bus(other(bus.settings)) as joined:
        assert joined.agreement == bus.agreement
