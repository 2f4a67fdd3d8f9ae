"""A request's deadline and its other limits under both event loops: workers run on uvloop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest
import uvloop

from loopline.workers.engines.in_flight import Ticket
from loopline.workers.engines.protocol import EngineDeadline, EngineError
from tests.workers.engines.asking import request

NewLoop = Callable[[], asyncio.AbstractEventLoop]

both_loops = pytest.mark.parametrize(
    "new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
)


class Endless:
    """Work that continues until it is cancelled, and then reports its end."""

    def __init__(self) -> None:
        self.begun = self.ended = False

    async def work(self) -> None:
        self.begun = True
        try:
            await asyncio.Event().wait()
        finally:
            self.ended = True


@both_loops
def test_work_that_exceeds_its_deadline_ends_with_that_error(new_loop: NewLoop) -> None:
    """Hundreds of deadlines at odd fractions of a millisecond, because a timer may fire slightly
    early."""

    async def late(number: int) -> type[BaseException] | None:
        ticket = Ticket(request(deadline=time.time() + 0.02 + number * 0.00037))
        try:
            await ticket.guard(Endless().work())
        except (EngineDeadline, TimeoutError) as error:
            return type(error)
        return None

    async def all_late() -> list[type[BaseException] | None]:
        async with asyncio.timeout(60):
            return list(await asyncio.gather(*(late(number) for number in range(300))))

    with asyncio.Runner(loop_factory=new_loop) as runner:
        assert set(runner.run(all_late())) == {EngineDeadline}


@both_loops
def test_work_stops_before_its_deadline_is_reported(new_loop: NewLoop) -> None:
    endless = Endless()

    async def main() -> None:
        with pytest.raises(EngineDeadline):
            await Ticket(request(deadline=time.time() + 0.05)).guard(endless.work())
        assert endless.begun
        assert endless.ended

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main())


@both_loops
def test_a_limit_that_comes_before_the_deadline_is_a_timeout(new_loop: NewLoop) -> None:
    async def main() -> None:
        ticket = Ticket(request(deadline=time.time() + 600))
        with pytest.raises(TimeoutError):
            await ticket.guard(Endless().work(), timeout=0.01)

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main())


async def test_a_free_slot_goes_only_to_a_request_that_is_still_wanted() -> None:
    slots = asyncio.Semaphore(1)
    late, cancelled = Ticket(request(deadline=time.time() - 1)), Ticket(request())
    cancelled.cancel()
    with pytest.raises(EngineDeadline):
        await late.take(slots)
    with pytest.raises(EngineError, match="cancelled"):
        await cancelled.take(slots)
    await Ticket(request()).take(slots)
    assert slots.locked()
    with pytest.raises(EngineDeadline):
        await Ticket(request(deadline=time.time() + 0.02)).take(slots)
