"""One of several equal requests is made; the others wait for its result, in any worker."""

from __future__ import annotations

import asyncio

import pytest

from loopline.bus import Bus
from loopline.bus.flights import Flights, Landed, Landing, flight_name

ANSWERED = Landing(Landed.ANSWERED, b"42")


async def test_the_first_caller_leads_and_the_others_receive_its_answer(bus: Bus) -> None:
    here, elsewhere = Flights(bus), Flights(bus)
    leader = await here.board("a")
    assert leader.leads
    seats = [(flights, await flights.board("a")) for flights in (here, here, elsewhere)]
    assert not any(seat.leads for _, seat in seats)
    waiting = [asyncio.create_task(flights.landing(seat)) for flights, seat in seats]
    async with here.leading(leader) as lead:
        lead.landing = ANSWERED
    assert await asyncio.gather(*waiting) == [ANSWERED] * 3


async def test_a_caller_that_comes_after_the_answer_leads_a_new_flight(bus: Bus) -> None:
    flights = Flights(bus)
    async with flights.leading(await flights.board("a")) as lead:
        lead.landing = ANSWERED
    assert (await flights.board("a")).leads


async def test_a_caller_that_joins_just_before_landing_still_receives_the_answer(bus: Bus) -> None:
    flights = Flights(bus)
    leader = await flights.board("a")
    late = await flights.board("a")
    async with flights.leading(leader) as lead:
        lead.landing = ANSWERED
    assert (await flights.board("a")).leads
    assert await flights.landing(late) == ANSWERED


async def test_a_leader_that_leaves_hands_the_flight_to_the_next_caller(bus: Bus) -> None:
    flights = Flights(bus)
    leader, second = await flights.board("a"), await flights.board("a")
    with pytest.raises(RuntimeError):
        async with flights.leading(leader):
            raise RuntimeError("its run has ended")
    assert (await flights.landing(second)).kind is Landed.GONE
    assert (await flights.board("a")).leads


async def test_a_leader_that_dies_is_noticed_within_its_lease(bus: Bus) -> None:
    flights = Flights(bus)
    await flights.board("a")  # and then goes silent
    second = await flights.board("a")
    async with asyncio.timeout(20):
        assert (await flights.landing(second)).kind is Landed.GONE
    assert (await flights.board("a")).leads


async def test_a_leader_that_works_for_long_is_not_considered_dead(bus: Bus) -> None:
    flights = Flights(bus)
    leader = await flights.board("a")
    second = await flights.board("a")
    waiting = asyncio.create_task(flights.landing(second))
    async with flights.leading(leader) as lead:
        # This is longer than a lease of the tests.
        await asyncio.wait({waiting}, timeout=2.5 * bus.settings.lease_seconds)
        assert not waiting.done()
        lead.landing = ANSWERED
    assert await waiting == ANSWERED


async def test_one_of_several_waiting_callers_may_leave(bus: Bus) -> None:
    flights = Flights(bus)
    leader = await flights.board("a")
    first, second = [
        asyncio.create_task(flights.landing(await flights.board("a"))) for _ in range(2)
    ]
    await asyncio.wait({first}, timeout=0.05)
    first.cancel()
    async with flights.leading(leader) as lead:
        lead.landing = ANSWERED
    assert await second == ANSWERED


def test_equal_requests_share_a_name_and_different_ones_do_not() -> None:
    assert flight_name(b"a", b"b") == flight_name(b"a", b"b")
    assert len({flight_name(b"a", b"b"), flight_name(b"ab", b""), flight_name(b"", b"ab")}) == 3
