"""Presence: each worker announces itself, and its announcement expires when it stops."""

from __future__ import annotations

import asyncio

import pytest

from loopline.bus import Bus, WorkerPresence, announce, live_workers
from loopline.bus.presence import BEAT, beat
from tests.bus.serving import until


async def test_a_worker_is_present_while_it_announces_itself(bus: Bus) -> None:
    state = "starting"

    def describe() -> WorkerPresence:
        return WorkerPresence(name="slm-1", kind="slm", state=state, details={"rows": 3})

    announcing = asyncio.create_task(announce(bus, describe))

    async def names() -> bool:
        return [worker.name for worker in await live_workers(bus)] == ["slm-1"]

    await until(names, "the worker is present")
    [worker] = await live_workers(bus)
    assert (worker.kind, worker.state, worker.details) == ("slm", "starting", {"rows": 3})
    assert worker.pid > 0
    assert worker.beat > 0
    announcing.cancel()
    await asyncio.gather(announcing, return_exceptions=True)
    assert await live_workers(bus) == []


async def test_a_worker_s_news_is_announced_at_once_and_not_at_the_next_beat(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loopline.bus.presence.BEAT", 3600)
    state, news = "starting", asyncio.Event()

    async def said(wanted: str) -> bool:
        return [worker.state for worker in await live_workers(bus)] == [wanted]

    announcing = asyncio.create_task(
        announce(bus, lambda: WorkerPresence(name="a", kind="slm", state=state), news)
    )
    await until(lambda: said("starting"), "the worker is present")
    state = "ready"
    news.set()
    await until(lambda: said("ready"), "the news are told")
    announcing.cancel()
    await asyncio.gather(announcing, return_exceptions=True)


async def test_a_dead_worker_s_announcement_expires_after_three_beats(bus: Bus) -> None:
    await beat(bus, WorkerPresence(name="dead", kind="slm"))
    life = await bus.redis.pttl(bus.keys.worker("dead"))
    assert 0 < life <= 3 * BEAT * 1000
    await bus.redis.pexpire(bus.keys.worker("dead"), 1)
    await until(lambda: _nobody(bus), "it has faded")


async def _nobody(bus: Bus) -> bool:
    return await live_workers(bus) == []


async def test_workers_are_listed_by_kind_and_name(bus: Bus) -> None:
    for name, kind in (("b", "slm"), ("z", "gpu"), ("a", "slm")):
        await beat(bus, WorkerPresence(name=name, kind=kind))
    assert [(worker.kind, worker.name) for worker in await live_workers(bus)] == [
        ("gpu", "z"),
        ("slm", "a"),
        ("slm", "b"),
    ]


async def test_an_unreadable_announcement_hides_no_worker(bus: Bus) -> None:
    for name, body in (("bad", b"{"), ("worse", b"\xff"), ("odd", b'{"name": 1}')):
        await bus.redis.set(bus.keys.worker(name), body, px=60_000)
        await bus.redis.zadd(bus.keys.workers, {name: 1e12})
    await bus.redis.zadd(bus.keys.workers, {b"\xff": 1e12})
    await beat(bus, WorkerPresence(name="slm-1", kind="slm"))
    assert [worker.name for worker in await live_workers(bus)] == ["slm-1"]
