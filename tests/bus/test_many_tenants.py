"""Tenants at their own limits never block others, however many there are."""

from __future__ import annotations

from loopline.bus import Bus, BusSettings
from loopline.bus.tenants import Tenant
from tests.bus.test_tenants import admit, at_work, bounded

MANY = 1_200


async def add_tenants_at_their_limit(bus: Bus) -> None:
    """Write the state that many admissions would leave: one run at work and one waiting per
    tenant."""
    tag, now = bus.keys.shard(0).turn_waits.removesuffix("turn-waits"), bus.clock.now_ms()
    async with bus.redis.pipeline(transaction=False) as pipe:
        for n in range(MANY):
            name = f"a{n:05}"
            pipe.hset(f"{tag}fair", mapping={f"c:{name}": 1, f"t:{name}": 0})
            pipe.zadd(f"{tag}working:{name}", {f"{name}-1": now + 60_000})
            pipe.rpush(f"{tag}queue:{name}", f"{name}-2")
            pipe.zadd(f"{tag}turns", {name: 0})
            pipe.pexpire(f"{tag}working:{name}", 60_000)
            pipe.pexpire(f"{tag}queue:{name}", 60_000)
        await pipe.execute()


async def test_a_thousand_tenants_at_their_limits_do_not_block_another(
    settings: BusSettings,
) -> None:
    async with bounded(settings, 1) as bus:
        first, second = await admit(bus, Tenant("z")), await admit(bus, Tenant("z"))
        await add_tenants_at_their_limit(bus)
        assert await at_work(bus) == 1
        await bus.cancel(first)
        assert [run_id for run_id, _ in await bus.active_runs()] == [second]
        assert await at_work(bus) == 2


async def test_a_tenant_at_its_limit_continues_when_one_of_its_runs_ends(
    settings: BusSettings,
) -> None:
    async with bounded(settings, 10) as bus:
        bounded_tenant = Tenant("a", max_working=1)
        first, second = await admit(bus, bounded_tenant), await admit(bus, bounded_tenant)
        await bus.cancel(await admit(bus, Tenant("b")))  # `a` is parked
        active = [run_id for run_id, _ in await bus.active_runs()]
        assert active == [first]
        await bus.cancel(first)
        assert [run_id for run_id, _ in await bus.active_runs()] == [second]


async def test_a_tenant_continues_when_its_limit_is_raised(settings: BusSettings) -> None:
    async with bounded(settings, 10) as bus:
        bounded_tenant = Tenant("a", max_working=1)
        runs = [await admit(bus, bounded_tenant) for _ in range(3)]
        await bus.cancel(await admit(bus, Tenant("b")))  # `a` is parked
        runs.append(await admit(bus, Tenant("a", max_working=3)))
        await bus.cancel(await admit(bus, Tenant("b")))
        active = {run_id for run_id, _ in await bus.active_runs()}
        assert len(active) == 3
        assert active <= set(runs)
