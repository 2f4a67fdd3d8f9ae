"""Schedules: runs that are admitted repeatedly, by the deployment's clock.

The bus treats a schedule as bytes with the time of its next tick. Any worker may fire a due
schedule: the script that admits the run of a tick also advances the schedule, so each tick has one
run. Schedules and their runs are in the first shard, which always exists.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from loopline.bus import scripts
from loopline.bus.admission import Admission, Gate
from loopline.bus.bus import Bus
from loopline.bus.connection import retry_during_outage
from loopline.bus.keys import SIGNAL_NAME, Shard

MAX_SCHEDULES = 1_000
"""Maximum number of schedules of a deployment."""
AT_ONCE = 100


@dataclass(frozen=True, slots=True)
class StoredSchedule:
    """A schedule as the bus keeps it."""

    name: str
    tick: float
    """Due time in Unix seconds by the bus's clock."""
    body: bytes


def home(bus: Bus) -> Shard:
    """Shard that holds all schedules."""
    return bus.keys.shard(0)


async def put(bus: Bus, name: str, body: bytes, tick: float, *, replace: bool = False) -> bool:
    """Add a schedule; False if the name exists. Raises ValueError for an invalid name or too many
    schedules, and `BusUnavailable`."""
    if not re.fullmatch(SIGNAL_NAME, name):
        raise ValueError(
            f"{name[:80]!r} is not a schedule's name: up to 64 letters, digits and _ . : -"
        )
    if len(body) > bus.settings.max_message_bytes:
        raise ValueError(f"the schedule has {len(body)} bytes, more than max_message_bytes")
    args: list[scripts.Value] = [name, body, _ms(tick), int(replace), MAX_SCHEDULES]
    answer = await _set(bus, args)
    if answer < 0:
        raise ValueError(f"there are already {MAX_SCHEDULES} schedules, which is the limit")
    return answer == 1


async def remove(bus: Bus, name: str) -> bool:
    """Remove a schedule; False if there is none with this name. Runs that it has started
    continue."""
    return await _set(bus, [name, b"", 0, 0, MAX_SCHEDULES]) == 1


async def ls(bus: Bus) -> list[StoredSchedule]:
    """All schedules, by name. Raises what Redis raises."""
    shard = home(bus)
    bodies: dict[bytes, bytes] = await bus.redis.hgetall(shard.schedules)  # pyright: ignore
    ticks = dict(await bus.redis.zrange(shard.schedule_times, 0, -1, withscores=True))
    return sorted(
        (
            StoredSchedule(name.decode(), ticks.get(name, 0.0) / 1000, body)
            for name, body in bodies.items()
        ),
        key=lambda schedule: schedule.name,
    )


async def due(bus: Bus) -> list[StoredSchedule]:
    """Schedules whose tick is due. Raises what Redis raises."""
    shard = home(bus)
    members: list[tuple[bytes, float]] = await bus.redis.zrange(
        shard.schedule_times,
        "-inf",  # pyright: ignore[reportArgumentType]
        bus.clock.now_ms(),
        byscore=True,
        withscores=True,
        offset=0,
        num=AT_ONCE,
    )
    schedules: list[StoredSchedule] = []
    for name, tick in members:
        body: bytes | None = await bus.redis.hget(shard.schedules, name.decode())  # pyright: ignore
        if body is not None:
            schedules.append(StoredSchedule(name.decode(), tick / 1000, body))
    return schedules


async def fire(
    bus: Bus, schedule: StoredSchedule, next_tick: float, admission: Admission | None
) -> bool:
    """Admit the run of a tick, or skip it (None); then the schedule waits for `next_tick`. False if
    another worker has done so, or the time is in doubt. `admission` must belong to the home shard.
    Raises what `Bus.admit` raises: then the tick is due again."""
    shard = home(bus)
    keys = (shard.schedule_times, shard.schedules)
    args = (schedule.name, _ms(schedule.tick), _ms(next_tick), bus.clock.now_ms())
    if admission is not None:
        return await bus.admit(admission, Gate("fire_schedule", keys, args))
    answer = await retry_during_outage(
        "schedule", lambda: scripts.call(bus.redis, "fire_schedule", keys, args)
    )
    return answer[0] == b"passed"


async def _set(bus: Bus, args: list[scripts.Value]) -> int:
    shard = home(bus)
    return await retry_during_outage(
        "schedule",
        lambda: scripts.call(
            bus.redis, "set_schedule", [shard.schedule_times, shard.schedules], args
        ),
        give_up_after=bus.patience,
        where=f"at {bus.settings.safe_url}",
    )


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
