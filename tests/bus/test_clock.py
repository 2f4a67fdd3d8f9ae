"""The deployment's time follows the server, whatever the machines' clocks show and wherever they
jump."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from loopline.bus import Bus, BusSettings, Delivery, WorkerPresence, live_workers
from loopline.bus.clock import Clock
from loopline.bus.presence import beat
from loopline.testing import RedisProcess, installed_servers
from loopline.testing.shifted_clock import ShiftedClock, can_shift_clocks, shifted_clock
from tests.bus.payloads import Note, admit
from tests.bus.serving import ended, finishing, serving, until
from tests.bus.worker_process import worker_process
from tests.conftest import quick_settings

HOURS = 7200.0
JUMPS = [-HOURS, HOURS]


@pytest.fixture
def wrong(tmp_path: Path) -> ShiftedClock:
    if not can_shift_clocks():
        pytest.skip("no C compiler on this machine, or no Linux")
    return shifted_clock(tmp_path)


@pytest.fixture
def jumping_server(wrong: ShiftedClock) -> Iterator[RedisProcess]:
    """A server whose clock is `wrong`."""
    servers = installed_servers()
    with tempfile.TemporaryDirectory(prefix="sw-") as folder:
        process = RedisProcess(Path(folder), binary=next(iter(servers.values())))
        with wrong.lying():
            process.start()
        yield process
        process.kill()


async def outcome(bus: Bus, run_id: str) -> str:
    return (await bus.run_state(run_id)).outcome


@pytest.mark.parametrize("off", JUMPS)
async def test_a_worker_whose_clock_is_hours_off_ends_no_run(
    bus: Bus, wrong: ShiftedClock, off: float
) -> None:
    wrong.jump(off)
    runs = [await admit(bus, seconds=30) for _ in range(8)]
    with wrong.lying(), worker_process(bus.settings) as worker:
        await worker.heard("ready")
        for run in runs:
            await ended(bus, run)
    assert [await outcome(bus, run) for run in runs] == ["answered"] * 8


@pytest.mark.parametrize("off", JUMPS)
async def test_a_worker_whose_clock_is_hours_off_drops_no_announcement_of_others(
    bus: Bus, monkeypatch: pytest.MonkeyPatch, off: float
) -> None:
    real = time.time
    await beat(bus, WorkerPresence(name="other", kind="slm"))
    monkeypatch.setattr(time, "time", lambda: real() + off)
    async with Bus(bus.settings) as wrong:
        await beat(wrong, WorkerPresence(name="wrong", kind="slm"))
    await beat(bus, WorkerPresence(name="third", kind="slm"))
    there = await bus.redis.zrange(bus.keys.workers, 0, -1, withscores=True)
    assert {name for name, _ in there} == {b"other", b"third", b"wrong"}
    assert max(score for _, score in there) - min(score for _, score in there) < 60


@pytest.mark.parametrize("off", JUMPS)
async def test_a_client_whose_clock_is_off_logs_it_and_uses_the_server_s_time(
    settings: BusSettings, monkeypatch: pytest.MonkeyPatch, off: float
) -> None:
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + off)
    with capture_logs() as lines:
        async with Bus(settings) as bus:
            assert abs(bus.clock.now() - real()) < 1
            assert abs(bus.clock.skew - off) < 1
    [line] = [line for line in lines if line["event"] == "this machine's clock is wrong"]
    assert abs(line["seconds_ahead"] - off) < 1


async def test_a_local_clock_jump_does_not_move_the_bus_time(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = time.time
    before = bus.clock.now()
    monkeypatch.setattr(time, "time", lambda: real() - HOURS)
    assert 0 <= bus.clock.now() - before < 5
    await bus.clock.measure(bus.redis, bus.keys)
    assert 0 <= bus.clock.now() - before < 5
    assert bus.clock.jumps == 0
    assert abs(bus.clock.skew + HOURS) < 1


@pytest.mark.parametrize("off", JUMPS)
async def test_a_server_clock_jump_ends_no_run_and_expires_no_lease(
    jumping_server: RedisProcess, wrong: ShiftedClock, off: float
) -> None:
    counts: list[int] = []
    go_on = asyncio.Event()

    async def slow(delivery: Delivery) -> None:
        counts.append(delivery.lease.count)
        await go_on.wait()
        await finishing(delivery)

    settings = quick_settings(jumping_server.url)
    async with Bus(settings) as bus, Bus(settings) as second_bus:
        for peer in (bus, second_bus):
            peer.registry.register("note", Note)
        runs = [await admit(bus, seconds=60) for _ in range(4)]
        async with serving(bus, ["planner"], slow), serving(second_bus, ["planner"], slow):
            await until(lambda: len(counts) == 4, "all are in progress")
            before = bus.clock.now()
            wrong.jump(off)
            await until(lambda: bus.clock.jumps == second_bus.clock.jumps == 1, "both have noticed")
            await asyncio.sleep(3 * settings.lease_seconds)  # sweeps that would take or end them
            assert 0 < bus.clock.now() - before < 20
            assert abs(bus.clock.now() - second_bus.clock.now()) < 1
            go_on.set()
            for run in runs:
                await ended(bus, run)
        assert counts == [1] * 4
        assert [await outcome(bus, run) for run in runs] == ["answered"] * 4


@pytest.mark.parametrize("off", JUMPS)
async def test_a_dead_worker_s_message_is_taken_over_after_a_server_clock_jump(
    jumping_server: RedisProcess, wrong: ShiftedClock, off: float
) -> None:
    settings = quick_settings(jumping_server.url)
    async with Bus(settings) as bus:
        bus.registry.register("note", Note)
        run = await admit(bus)
        with worker_process(settings, behaviour="hold") as doomed:
            await doomed.heard("took")
            doomed.process.kill()
        jumping_server.kill()
        wrong.jump(off)
        with wrong.lying():
            jumping_server.start()
        async with serving(bus, ["planner"], finishing):
            await ended(bus, run)
        assert await outcome(bus, run) == "answered"


async def test_an_overdue_run_ends_by_deployment_time_after_a_clock_jump(
    jumping_server: RedisProcess, wrong: ShiftedClock
) -> None:
    settings = quick_settings(jumping_server.url)
    async with Bus(settings) as bus:
        bus.registry.register("note", Note)
        wrong.jump(-HOURS)
        await until(lambda: bus.clock.jumps == 1, "it has noticed")
        run = await admit(bus, stream="nobody", seconds=1)
        async with serving(bus, ["planner"], finishing):
            await ended(bus, run)
        assert await outcome(bus, run) == "deadline"


async def test_a_resumed_process_adopts_the_time_of_the_others(bus: Bus) -> None:
    late = Clock()
    await late.measure(bus.redis, bus.keys)
    late._at += HOURS  # pyright: ignore[reportPrivateUsage] - as if its steady clock had stood still
    await late.measure(bus.redis, bus.keys)
    assert abs(late.now() - bus.clock.now()) < 1
    assert late.jumps == bus.clock.jumps == 0


async def test_bus_time_continues_for_the_first_process_to_join_after_a_backward_jump(
    jumping_server: RedisProcess, wrong: ShiftedClock
) -> None:
    settings = quick_settings(jumping_server.url)
    async with Bus(settings) as bus:
        before = bus.clock.now()
    wrong.jump(-HOURS)
    async with Bus(settings) as bus:
        assert -1 < bus.clock.now() - before < 20


async def test_an_announcement_from_before_a_clock_jump_expires_by_deployment_time(
    jumping_server: RedisProcess, wrong: ShiftedClock
) -> None:
    async with Bus(quick_settings(jumping_server.url)) as bus:
        await beat(bus, WorkerPresence(name="dead", kind="slm"))
        wrong.jump(-HOURS)

        async def nobody() -> bool:
            return await live_workers(bus) == []

        await until(nobody, "it has faded")
        assert await bus.redis.exists(bus.keys.worker("dead"))
