"""An observer of a process's work on the bus receives each event once."""

from __future__ import annotations

from collections import Counter

import pytest

from loopline.bus import Bus, Delivery, Observer, Reject, Retry
from tests.bus.payloads import admit
from tests.bus.serving import ended, finishing, serving, until
from tests.bus.worker_process import worker_process


class Recording(Observer):
    """Records its events."""

    def __init__(self) -> None:
        self.events: Counter[str] = Counter()
        self.queued: list[float] = []
        self.seconds: list[float] = []

    def begun(self, stream: str, queued: float) -> None:
        self.events[f"begun {stream}"] += 1
        self.queued.append(queued)

    def handled(self, stream: str, seconds: float) -> None:
        self.events[f"handled {stream}"] += 1
        self.seconds.append(seconds)

    def retried(self, stream: str) -> None:
        self.events[f"retried {stream}"] += 1

    def lease_lost(self, stream: str) -> None:
        self.events[f"lease lost {stream}"] += 1

    def lease_taken_over(self, stream: str) -> None:
        self.events[f"taken over {stream}"] += 1

    def dead_lettered(self, stream: str) -> None:
        self.events[f"dead letter {stream}"] += 1


@pytest.fixture
def observer(bus: Bus) -> Recording:
    bus.observer = recording = Recording()
    return recording


async def test_the_observer_sees_both_attempts_and_the_retry_between_them(
    bus: Bus, observer: Recording
) -> None:
    async def handler(delivery: Delivery) -> None:
        if delivery.envelope.attempt == 0:
            raise Retry("not yet", 0.1)
        await finishing(delivery)

    async with serving(bus, ["planner"], handler):
        await ended(bus, await admit(bus))
    assert observer.events == {"begun planner": 2, "handled planner": 2, "retried planner": 1}


async def test_the_observer_sees_a_rejected_message_as_a_dead_letter(
    bus: Bus, observer: Recording
) -> None:
    async def handler(delivery: Delivery) -> None:
        raise Reject("never")

    async with serving(bus, ["planner"], handler):
        await ended(bus, await admit(bus))
    assert observer.events == {"begun planner": 1, "handled planner": 1, "dead letter planner": 1}


async def test_the_observer_receives_queue_time_and_handling_time(
    bus: Bus, observer: Recording
) -> None:
    run_id = await admit(bus)
    before = bus.clock.now()
    await until(lambda: bus.clock.now() - before > 0.2, "a fifth of a second")
    async with serving(bus, ["planner"], finishing):
        await ended(bus, run_id)
    assert 0.2 <= observer.queued[0] < 20
    assert 0 < observer.seconds[0] < 20


async def test_the_observer_sees_the_takeover_of_a_killed_worker_s_lease(
    bus: Bus, observer: Recording
) -> None:
    run_id = await admit(bus)
    with worker_process(bus.settings, behaviour="die") as worker:
        await worker.heard("took")
    async with serving(bus, ["planner"], finishing):
        await ended(bus, run_id)
    assert observer.events["taken over planner"] == 1
    assert observer.events["lease lost planner"] == 0


async def test_the_observer_sees_a_stolen_lease_as_lost(bus: Bus, observer: Recording) -> None:
    async def handler(delivery: Delivery) -> None:
        # Another worker that considered this one dead would do the same.
        await bus.redis.xclaim(
            delivery.lease.stream, delivery.lease.group, "another", 0, [delivery.lease.entry]
        )
        await finishing(delivery)

    async with serving(bus, ["planner"], handler):
        await admit(bus)
        await until(lambda: observer.events["lease lost planner"] == 1, "word of the lost lease")
    assert observer.events["retried planner"] == 0
