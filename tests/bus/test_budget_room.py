"""When a call leaves room in a budget, it brings a waiting call back with that room reserved."""

from __future__ import annotations

import pytest

from loopline.bus import Bus, Delivery, Limits, NoRoom, Reservation, Scope
from loopline.bus.budgets import counts
from loopline.bus.unfinished import wait_for_room
from tests.bus.leasing import take
from tests.bus.test_budgets import admitted, answer, asked, own_counts, send


async def put_aside(bus: Bus, run_id: str, key: str, tokens: int) -> Delivery:
    """Ask for this many tokens when there is no room, and wait."""
    delivery = await asked(bus, run_id, key)
    with pytest.raises(NoRoom) as refused:
        await send(delivery, tokens)
    await wait_for_room(delivery, refused.value, 0)
    return delivery


async def waiting(bus: Bus) -> int:
    return int(await bus.redis.zcard(bus.keys.shard(0).delayed("infer")))


async def back(bus: Bus, run_id: str) -> Delivery | None:
    """Return the next call that was brought back to the stream."""
    try:
        return await take(bus, run_id, "next", most=1)
    except ValueError:
        return None


async def test_an_answer_brings_a_waiting_call_back_and_reserves_its_room(bus: Bus) -> None:
    run_id = await admitted(bus, tokens=100)
    first = await asked(bus, run_id, "first")
    await send(first, 60)
    await put_aside(bus, run_id, "second", 60)
    assert (await back(bus, run_id), await waiting(bus)) == (None, 1)
    await answer(first, 40)
    assert (await own_counts(bus, run_id))["held:tokens"] == 60
    second = await back(bus, run_id)
    assert second is not None
    assert second.envelope.reply_key == f"{run_id}/second"
    with pytest.raises(NoRoom):  # no later call takes it away
        await send(await asked(bus, run_id, "third"), 10)
    await send(second, 60)
    assert (await own_counts(bus, run_id))["held:tokens"] == 60
    await answer(second, 60)
    assert (await own_counts(bus, run_id))["held:tokens"] == 0


async def test_a_call_gets_room_that_is_freed_before_it_starts_to_wait(bus: Bus) -> None:
    run_id = await admitted(bus, tokens=100)
    first, second = await asked(bus, run_id, "first"), await asked(bus, run_id, "second")
    await send(first, 60)
    with pytest.raises(NoRoom) as refused:
        await send(second, 60)
    await answer(first, 40)
    await wait_for_room(second, refused.value, 0)
    assert await waiting(bus) == 0
    assert await back(bus, run_id) is not None


async def test_waiting_calls_return_in_order_while_there_is_room(bus: Bus) -> None:
    run_id = await admitted(bus, tokens=100)
    first = await asked(bus, run_id, "first")
    await send(first, 100)
    for number in range(4):
        await put_aside(bus, run_id, f"{number}", 30)
    await answer(first, 40)
    keys = [(await take(bus, run_id, "next", most=1)).envelope.reply_key for _ in range(2)]
    assert keys == [f"{run_id}/0", f"{run_id}/1"]
    assert (await back(bus, run_id), await waiting(bus)) == (None, 2)


async def test_a_waiting_call_that_can_no_longer_fit_returns_to_be_refused(bus: Bus) -> None:
    run_id = await admitted(bus, tokens=100)
    first = await asked(bus, run_id, "first")
    await send(first, 60)
    await put_aside(bus, run_id, "second", 60)
    await answer(first, 60)
    assert await back(bus, run_id) is not None
    assert (await own_counts(bus, run_id))["held:tokens"] == 0


async def test_a_call_waits_for_the_budget_that_lacks_room(bus: Bus) -> None:
    """The room that its run leaves does not help while its key has none."""
    scope = Scope("key:somebody", Limits(tokens=100))
    others = await asked(bus, await admitted(bus, scope), "others")
    run_id = await admitted(bus, scope, tokens=90)
    first = await asked(bus, run_id, "first")
    await send(first, 50)
    await send(others, 50)
    await put_aside(bus, run_id, "second", 60)
    await answer(first, 10)
    assert await back(bus, run_id) is None
    await answer(others, 10)
    assert await back(bus, run_id) is not None
    assert await counts(bus, "key:somebody") == (Limits(20), Limits(60))


async def test_an_ended_run_releases_all_its_room_to_others(bus: Bus) -> None:
    scope = Scope("key:somebody", Limits(tokens=100))
    first_run, second_run = await admitted(bus, scope), await admitted(bus, scope)
    first = await asked(bus, first_run, "first")
    await first.mark(1, b"", most=Reservation(100))  # a local model
    await put_aside(bus, second_run, "second", 100)
    await bus.cancel(first_run)
    assert await back(bus, second_run) is not None
    assert await counts(bus, "key:somebody") == (Limits(), Limits(100))
    await bus.cancel(second_run)
    assert await counts(bus, "key:somebody") == (Limits(), Limits())


async def test_a_worker_that_takes_over_a_returned_call_inherits_its_room(bus: Bus) -> None:
    run_id = await admitted(bus, tokens=100)
    first = await asked(bus, run_id, "first")
    await send(first, 60)
    await put_aside(bus, run_id, "second", 60)
    await answer(first, 40)
    second = await back(bus, run_id)
    assert second is not None
    again = await take(bus, run_id, "another", after=second)
    await send(again, 60)
    assert (await own_counts(bus, run_id))["held:tokens"] == 60
