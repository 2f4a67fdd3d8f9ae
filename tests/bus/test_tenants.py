"""Where the number of running runs is limited, tenants take turns by weight and priority."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

import pytest

from loopline.bus import (
    Admission,
    Bus,
    BusSettings,
    Delivery,
    Limits,
    Outgoing,
    Overloaded,
    Scope,
    StepCommit,
    Wait,
)
from loopline.bus.budgets import counts, set_limits
from loopline.bus.tenants import Tenant
from loopline.bus.waits import SignalSent, send_signal
from tests.bus.payloads import Note, Woken, new_run_id, note, woken_note
from tests.bus.serving import ended, finishing, serving, until


@asynccontextmanager
async def bounded(settings: BusSettings, limit: int) -> AsyncGenerator[Bus]:
    async with Bus(settings.model_copy(update={"max_working": limit})) as bus:
        bus.registry.register("note", Note)
        yield bus


async def admit(bus: Bus, tenant: Tenant) -> str:
    run_id = new_run_id()
    await bus.admit(
        Admission(
            run_id, b"{}", bus.clock.now() + 60, (Outgoing("planner", note(run_id, tenant.name)),),
            tenant=tenant,
        )
    )  # fmt: skip
    return run_id


async def at_work(bus: Bus) -> int:
    return (await bus.queue_lengths(["planner"]))["planner"]


async def order(bus: Bus, runs: dict[str, str]) -> list[str]:
    """Return the tenants of the runs, in the order in which they start when one after the other
    ends."""
    begun: list[str] = []
    while await at_work(bus):
        [(_, fields)] = await bus.redis.xrange(bus.keys.shard(0).work("planner"), count=1)
        run_id = next(run_id for run_id in runs if run_id.encode() in fields[b"e"])
        begun.append(runs[run_id])
        await bus.redis.delete(bus.keys.shard(0).work("planner"))
        assert await bus.cancel(run_id)
    return begun


async def test_a_run_beyond_the_limit_waits_until_one_ends(settings: BusSettings) -> None:
    async with bounded(settings, 2) as bus:
        runs = [await admit(bus, Tenant("a")) for _ in range(5)]
        assert await at_work(bus) == 2
        await bus.cancel(runs[0])
        assert await at_work(bus) == 3  # a cancelled run's message stays until it is read
        await bus.cancel(runs[4])  # a waiting run
        assert (await bus.run_state(runs[4])).outcome == "cancelled"
        async with serving(bus, ["planner"], finishing):
            for run_id in runs[1:4]:
                await ended(bus, run_id)
                assert (await bus.run_state(run_id)).outcome == "answered"


async def test_runs_that_are_cancelled_while_they_wait_leave_the_queue(
    settings: BusSettings,
) -> None:
    async with bounded(settings, 1) as bus:
        shard, impatient = bus.keys.shard(0), Tenant("impatient")
        await admit(bus, impatient)
        for _ in range(20):
            await bus.cancel(await admit(bus, impatient))
        last = await admit(bus, impatient)
        key = f"{shard.turn_waits.rpartition(':')[0]}:queue:impatient"
        assert await bus.redis.lrange(key, 0, -1) == [last.encode()]  # pyright: ignore
        await bus.cancel(last)
        assert await at_work(bus) == 1
        # No run waits, so the next place goes to the next caller.
        async with serving(bus, ["planner"], finishing):
            await ended(bus, await admit(bus, impatient))


async def test_a_later_tenant_does_not_wait_behind_another_s_queue(
    settings: BusSettings,
) -> None:
    async with bounded(settings, 1) as bus:
        runs = {await admit(bus, Tenant("many")): "many" for _ in range(10)}
        runs |= {await admit(bus, Tenant("few")): "few" for _ in range(2)}
        begun = await order(bus, runs)
    assert len(begun) == 12
    assert begun[:5].count("few") == 2


async def test_turns_are_proportional_to_the_weights(settings: BusSettings) -> None:
    async with bounded(settings, 1) as bus:
        runs = {await admit(bus, Tenant("first")): "first"}
        for name, weight in (("light", 1.0), ("heavy", 3.0)):
            runs |= {await admit(bus, Tenant(name, weight)): name for _ in range(12)}
        begun = await order(bus, runs)
    assert begun[1:13].count("heavy") in (8, 9, 10)


async def test_a_higher_priority_always_goes_first(settings: BusSettings) -> None:
    async with bounded(settings, 1) as bus:
        runs = {await admit(bus, Tenant("plain")): "plain" for _ in range(4)}
        runs |= {await admit(bus, Tenant("urgent", priority=5)): "urgent" for _ in range(3)}
        assert await order(bus, runs) == ["plain", *["urgent"] * 3, *["plain"] * 3]


async def test_a_tenant_s_own_limit_leaves_room_for_others(settings: BusSettings) -> None:
    async with bounded(settings, 0) as bus:
        capped = Tenant("capped", max_working=1)
        first, second = await admit(bus, capped), await admit(bus, capped)
        assert await at_work(bus) == 1
        await admit(bus, Tenant("other"))
        assert await at_work(bus) == 2
        await bus.cancel(first)
        assert await at_work(bus) == 3
        assert (await bus.run_state(second)).active


async def test_a_client_without_a_limit_still_takes_its_turn(
    settings: BusSettings,
) -> None:
    async with bounded(settings, 1) as bus:
        await admit(bus, Tenant("a"))
        async with Bus(settings) as other:
            await admit(other, Tenant("b"))
        assert await at_work(bus) == 1


@pytest.mark.parametrize("limit", [1, 3])
async def test_every_waiting_run_is_eventually_answered(settings: BusSettings, limit: int) -> None:
    async with bounded(settings, limit) as bus, serving(bus, ["planner"], finishing):
        runs = [await admit(bus, Tenant(name)) for name in "abc" * 10]
        for run_id in runs:
            await ended(bus, run_id)
            assert (await bus.run_state(run_id)).outcome == "answered"


@pytest.mark.parametrize(("limit", "tenant_limit"), [(1, 0), (0, 1)])
async def test_a_waiting_run_frees_its_place_and_takes_one_again_when_it_resumes(
    settings: BusSettings, limit: int, tenant_limit: int
) -> None:
    async with bounded(settings, limit) as bus:
        bus.registry.register("woken", Woken)
        tenant = Tenant("a", max_working=tenant_limit)
        waiter = await admit(bus, tenant)
        second = await admit(bus, tenant)
        assert await at_work(bus) == 1

        async def wait(delivery: Delivery) -> None:
            follows = Outgoing("after", woken_note(waiter, 1))
            await delivery.commit(StepCommit(b"{}", wait=Wait("paid", follows, "text", 60)))

        async with serving(bus, ["planner"], wait):
            await until(lambda: is_waiting(bus, waiter), "the first run waits")
            await until(lambda: is_waiting(bus, second), "the second had its place")
        assert await send_signal(bus, waiter, "paid", b"{}", "1") is SignalSent.WOKEN
        await admit(bus, tenant)
        assert await at_work(bus) == 0, "the run that goes on counts"
        await bus.cancel(waiter)
        assert await at_work(bus) == 1


async def test_a_delayed_run_takes_no_place_before_it_starts(settings: BusSettings) -> None:
    async with bounded(settings, 1) as bus:
        run_id = new_run_id()
        message = Outgoing("planner", note(run_id, "later"))
        deadline = bus.clock.now() + 60
        await bus.admit(
            Admission(run_id, b"{}", deadline, (message,), tenant=Tenant("a"), delay=30.0)
        )
        await admit(bus, Tenant("a"))
        assert await at_work(bus) == 1


async def is_waiting(bus: Bus, run_id: str) -> bool:
    return bool((await bus.run_state(run_id)).waits)


async def let_in(bus: Bus, tenant: Tenant, count: int) -> list[str]:
    """Return the admitted runs of a tenant that asks this many times."""
    runs: list[str] = []
    for _ in range(count):
        with suppress(Overloaded):
            runs.append(await admit(bus, tenant))
    return runs


async def test_a_lone_tenant_may_use_every_place(settings: BusSettings) -> None:
    async with Bus(settings.model_copy(update={"max_runs": 20})) as bus:
        bus.registry.register("note", Note)
        assert len(await let_in(bus, Tenant("large"), 30)) == 20


async def test_a_tenant_that_asks_for_all_places_leaves_some_for_others(
    settings: BusSettings,
) -> None:
    async with Bus(settings.model_copy(update={"max_runs": 20})) as bus:
        bus.registry.register("note", Note)
        await bus.cancel(await admit(bus, Tenant("small")))
        assert len(await let_in(bus, Tenant("large"), 30)) == 18
        with pytest.raises(Overloaded, match=r"of the tenant large \(it shares the places"):
            await admit(bus, Tenant("large"))
        assert len(await let_in(bus, Tenant("small"), 1)) == 1


async def test_places_taken_before_other_tenants_asked_are_freed_for_them(
    settings: BusSettings,
) -> None:
    async with Bus(settings.model_copy(update={"max_runs": 20})) as bus:
        bus.registry.register("note", Note)
        large = await let_in(bus, Tenant("large"), 30)
        assert await let_in(bus, Tenant("small"), 1) == [], "it is full"
        small: list[str] = []
        for run_id in large:
            await bus.cancel(run_id)
            # The large tenant is quicker to ask, each time.
            await let_in(bus, Tenant("large"), 5)
            small += await let_in(bus, Tenant("small"), 5)
        assert len(small) >= 9


async def test_runs_that_wait_for_their_turn_do_not_count_as_in_flight(
    settings: BusSettings,
) -> None:
    limits = {"max_runs": 2, "max_working": 1, "max_queued": 5}
    async with Bus(settings.model_copy(update=limits)) as bus:
        bus.registry.register("note", Note)
        assert len(await let_in(bus, Tenant("a"), 9)) == 6
        assert len(await bus.active_runs()) == 1
        with pytest.raises(Overloaded, match="5 runs waiting for their turn"):
            await admit(bus, Tenant("a"))


async def test_a_run_s_time_starts_with_its_turn(settings: BusSettings) -> None:
    async with bounded(settings, 1) as bus:
        first = await admit(bus, Tenant("a"))
        second = await admit(bus, Tenant("a"))
        key = bus.keys.shard_of(second).run(second)
        assert await bus.redis.hget(key, "left") is not None  # pyright: ignore
        assert not await bus.end_run(second, "deadline", "", only_if_overdue=True)
        assert (await bus.run_state(second)).deadline > bus.clock.now() + 86_400
        await bus.cancel(first)
        left = bus.clock.left((await bus.run_state(second)).deadline)
        assert 50 < left <= 60
        assert [run_id for run_id, _ in await bus.active_runs()] == [second]
        life = int(await bus.redis.pttl(key)) / 1000
        assert life <= 60 + settings.retention_seconds
        async with serving(bus, ["planner"], finishing):
            await ended(bus, second)
        assert (await bus.run_state(second)).outcome == "answered"


async def test_waiting_for_a_turn_spends_no_budget_seconds(
    settings: BusSettings,
) -> None:
    async with bounded(settings, 1) as bus:
        await set_limits(bus, "day", Limits(milliseconds=10_000_000))
        runs: list[str] = []
        for _ in range(2):
            runs.append(new_run_id())
            message = Outgoing("planner", note(runs[-1]))
            deadline = bus.clock.now() + 60
            await bus.admit(
                Admission(runs[-1], b"{}", deadline, (message,), scopes=(Scope("day"),))
            )
        _, reserved = await counts(bus, "day")
        assert reserved.milliseconds > 110_000
        await bus.cancel(runs[1])  # it never started
        spent, _ = await counts(bus, "day")
        assert spent.milliseconds == 0
        await set_limits(bus, "day", Limits())


async def test_a_run_admitted_by_an_earlier_version_takes_its_turn(settings: BusSettings) -> None:
    """In that version it waits among the runs in flight, with its deadline."""
    async with bounded(settings, 1) as bus:
        first, second = await admit(bus, Tenant("a")), await admit(bus, Tenant("a"))
        shard, deadline = bus.keys.shard(0), bus.clock.now_ms() + 60_000
        waits = shard.turn_waits
        await bus.redis.zrem(waits, second)
        await bus.redis.zadd(waits.replace("turn-waits", "parked"), {second: 1})
        await bus.redis.pexpire(waits.replace("turn-waits", "parked"), 60_000)
        await bus.redis.zadd(shard.active, {second: deadline})
        await bus.redis.hset(shard.run(second), "deadline", str(deadline))  # pyright: ignore
        await bus.redis.hdel(shard.run(second), "left", "retention")  # pyright: ignore
        third = await admit(bus, Tenant("a"))
        assert await at_work(bus) == 1
        await bus.cancel(first)
        assert await at_work(bus) == 2
        assert (await bus.run_state(second)).deadline == deadline / 1000
        await bus.cancel(second)
        assert await at_work(bus) == 3
        assert (await bus.run_state(third)).active
