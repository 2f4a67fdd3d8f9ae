"""No background task ends unnoticed: its end stops the work that depends on it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from loopline.bus import BackgroundEnded, Bus, BusSettings, Consumer, Inbox
from loopline.bus.lease import LeaseKeeper
from loopline.bus.recovery import Sweeper
from loopline.bus.tasks import Background
from loopline.testing import RedisProcess
from loopline.workers.process import Worker
from loopline.workers.settings import RoleWorkerSettings
from tests.bus.payloads import admit, note
from tests.bus.serving import finishing
from tests.conftest import quick_settings


async def defect(*_: object, **__: object) -> None:
    raise ValueError("a defect")


def defect_in_a_thread(*_: object, **__: object) -> None:
    raise ValueError("a defect")


async def for_ever() -> None:
    await asyncio.Event().wait()


async def within(seconds: float, work: asyncio.Task[None]) -> None:
    async with asyncio.timeout(seconds):
        await work


async def test_a_background_task_that_raises_stops_the_main_work() -> None:
    background = Background()
    background.start(defect(), name="heartbeat")
    with pytest.raises(
        BackgroundEnded, match=r"heartbeat ended by itself \(ValueError: a defect\)"
    ):
        await background.run(for_ever())


async def test_a_background_task_that_returns_stops_the_main_work() -> None:
    background = Background()
    background.start(asyncio.sleep(0), name="sweeper")
    with pytest.raises(BackgroundEnded, match=r"sweeper ended by itself \(it returned\)"):
        await background.run(for_ever())


async def test_a_task_that_is_stopped_or_may_end_does_not_stop_the_main_work() -> None:
    background = Background()
    background.start(asyncio.sleep(0), name="announcement", may_end=True)
    stopped = background.start(for_ever(), name="claim")
    second_task = background.start(for_ever(), name="other")
    await background.stop([stopped])
    assert await background.run(asyncio.sleep(0.01, "the work's own")) == "the work's own"
    assert stopped.cancelled()
    assert not second_task.done()
    await background.end()
    background.check()


async def test_work_that_starts_after_a_background_failure_stops_at_once() -> None:
    background = Background()
    task = background.start(defect(), name="heartbeat")
    await asyncio.wait({task})
    await asyncio.sleep(0)
    with pytest.raises(BackgroundEnded):
        await background.run(for_ever())


async def test_a_consumer_stops_when_its_sweeper_fails(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Sweeper, "run", defect)
    serving = asyncio.create_task(Consumer(bus, ["planner"], finishing).run())
    with pytest.raises(BackgroundEnded, match="sweeper of planner"):
        await within(10, serving)


@pytest.mark.parametrize(
    ("target", "name", "broken"),
    [
        ("loopline.workers.process.announce", "presence", defect),
        ("loopline.bus.requests.Inbox._read", "inbox-0", defect),
        ("loopline.bus.recovery.Sweeper.run", "sweeper of role:planner", defect),
        ("loopline.bus.lease.LeaseKeeper._renew_due", "lease keeper", defect_in_a_thread),
    ],
)
async def test_a_worker_exits_and_names_its_failed_background_task(
    any_server: RedisProcess,
    monkeypatch: pytest.MonkeyPatch,
    target: str,
    name: str,
    broken: Callable[..., object],
) -> None:
    """A worker that continued without it would report that it is ready forever."""
    monkeypatch.setattr(target, broken)
    settings = RoleWorkerSettings(bus=quick_settings(any_server.url), roles=("planner",))
    with pytest.raises(BackgroundEnded, match=name):
        await within(20, asyncio.create_task(Worker(settings).run()))


async def test_callers_that_wait_for_mail_fail_when_the_inbox_reader_dies(
    bus: Bus, settings: BusSettings
) -> None:
    broken = asyncio.Event()

    class Broken(Inbox):
        async def _read(self, shard: object) -> None:
            await broken.wait()
            raise ValueError("a defect")

    async with Broken(bus) as inbox:
        run_id = await admit(bus)
        asking = asyncio.create_task(inbox.request("planner", note(run_id, key="k")))
        waiting = asyncio.create_task(inbox.wait_ended(run_id))
        await asyncio.sleep(0.1)
        broken.set()
        done, pending = await asyncio.wait({asking, waiting}, timeout=2)
        assert not pending
        for task in done:
            assert isinstance(task.exception(), BackgroundEnded)


def test_the_lease_keeper_reports_its_own_failure(settings: BusSettings) -> None:
    errors: list[BaseException] = []

    class Broken(LeaseKeeper):
        def _run(self) -> None:
            raise ValueError("a defect")

    keeper = Broken(settings)
    keeper.start(errors.append)
    keeper.stop()
    assert [str(error) for error in errors] == ["a defect"]
