"""Cron schedules: one run for each tick, even if late, and even with many workers."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from loopline.agents.records import Budget, Run
from loopline.bus import Bus, BusSettings, Limits, read_content, schedules
from loopline.bus.budgets import set_limits
from loopline.runtime.client.client import Client
from loopline.runtime.client.run_records import run_of
from loopline.workers.messages import registry
from loopline.workers.schedules import Memory, Schedule, ScheduleServer, fire_due, zone_of
from tests.bus.serving import until


@pytest.fixture
def template(settings: BusSettings) -> Run:
    return Client.connect(settings).new_run("Read the news.", budget=Budget(seconds=60))


def schedule(template: Run, cron: str = "* * * * *", **fields: object) -> Schedule:
    return Schedule.model_validate({"cron": cron, "added": 1.0, "run": template, **fields})


async def put(bus: Bus, item: Schedule, tick: float, name: str = "news") -> None:
    assert await schedules.put(bus, name, item.model_dump_json().encode(), tick)


async def runs(bus: Bus) -> list[Run]:
    listed: list[Run] = []
    for shard in bus.keys.all_shards():
        for run_id in await bus.redis.zrange(shard.runs(), 0, -1):
            listed.append(run_of(await bus.run_state(run_id.decode())))
    return listed


def unix(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def test_ticks_follow_the_time_zone_across_a_clock_change(template: Run) -> None:
    daily = schedule(template, "0 7 * * *", timezone="Europe/Berlin")
    assert daily.next_tick(unix("2026-10-24T07:00:00+02:00")) == unix("2026-10-25T07:00:00+01:00")
    assert daily.last_tick(unix("2026-10-25T07:00:00+01:00")) == unix("2026-10-25T07:00:00+01:00")
    assert schedule(template, "*/5 * * * *").next_tick(unix("2026-01-01T00:01:00+00:00")) == unix(
        "2026-01-01T00:05:00+00:00"
    )


@pytest.mark.parametrize("cron", ["", "every day", "61 * * * *", "0 0 30 2 *"])
def test_a_cron_expression_without_any_time_is_refused(template: Run, cron: str) -> None:
    with pytest.raises(ValueError, match="is not a cron schedule"):
        schedule(template, cron).next_tick(unix("2026-01-01T00:00:00+00:00"))


def test_an_unknown_time_zone_is_reported_by_name() -> None:
    assert zone_of("UTC") is UTC
    for name in ("Mars/Base", "../../etc/passwd", ""):
        with pytest.raises(ValueError, match="no time zone"):
            zone_of(name)


async def test_a_tick_has_one_run_however_many_processes_fire_it(
    settings: BusSettings, template: Run
) -> None:
    async with Bus(settings.model_copy(update={"shards": 3}), registry()) as bus:
        now = bus.clock.now()
        await put(bus, schedule(template), now - 1)
        counts = await asyncio.gather(*(fire_due(bus) for _ in range(5)))
        assert sum(counts) == 1
        [run] = await runs(bus)
        assert (run.task.prompt, run.tags["schedule"]) == ("Read the news.", "news")
        assert bus.keys.shard_of(run.id) == schedules.home(bus)
        assert 50 < run.deadline - now <= 70
        [stored] = await schedules.ls(bus)
        assert now < stored.tick <= now + 61


async def test_a_schedule_runs_missed_ticks_once_or_skips_them(
    settings: BusSettings, template: Run
) -> None:
    async with Bus(settings, registry()) as bus:
        now = bus.clock.now()
        hourly = f"{(datetime.fromtimestamp(now, UTC).minute - 10) % 60} * * * *"
        await put(bus, schedule(template, hourly, missed="once"), now - 3 * 86_400, "late")
        await put(bus, schedule(template, hourly, missed="skip"), now - 3 * 86_400, "skipped")
        await fire_due(bus)
        assert [run.tags["schedule"] for run in await runs(bus)] == ["late"]
        assert all(item.tick > now for item in await schedules.ls(bus))


async def test_a_scheduled_run_is_admitted_like_a_client_s_with_budgets_and_prompts(
    settings: BusSettings, template: Run
) -> None:
    async with Bus(settings, registry()) as bus:
        await put(bus, schedule(template), bus.clock.now() - 1)
        assert await fire_due(bus) == 1
        [run] = await runs(bus)
        assert run.prompts
        for digest in run.prompts.values():
            assert await read_content(bus, digest) is not None
        await set_limits(bus, "tag:schedule=limited", Limits(milliseconds=1_000))
        try:
            await put(bus, schedule(template), bus.clock.now() - 1, "limited")
            memory = Memory()
            assert await fire_due(bus, memory) == 0
            assert len(memory.logged) == 1
        finally:
            await set_limits(bus, "tag:schedule=limited", Limits())


async def test_a_schedule_with_an_unknown_workflow_stays_due_for_other_servers(
    settings: BusSettings, template: Run
) -> None:
    async with Bus(settings, registry()) as bus:
        now = bus.clock.now()
        strange = template.model_copy(update={"workflow": "nobody-has-this"})
        await put(bus, schedule(strange), now - 1)
        memory = Memory()
        assert await fire_due(bus, memory) == 0
        assert len(memory.logged) == 1
        [stored] = await schedules.ls(bus)
        assert stored.tick < now


async def test_a_server_fires_until_it_is_drained(settings: BusSettings, template: Run) -> None:
    async with Bus(settings, registry()) as bus:
        server = ScheduleServer(bus)
        serving = asyncio.create_task(server.run())
        await put(bus, schedule(template), bus.clock.now() - 1)

        async def ran() -> bool:
            return len(await runs(bus)) == 1

        await until(ran, "its run is admitted")
        server.drain()
        await asyncio.wait_for(serving, 5)
