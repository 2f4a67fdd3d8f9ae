"""Cron schedules of runs: any role worker fires them, and each tick fires once.

A schedule stores its run as it was when the schedule was added: question, workflow with its
options, policies and budget. Each tick's run has its own id, which follows from the schedule and
the tick.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo
from typing import TYPE_CHECKING, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import structlog
from cronsim import CronSim, CronSimError
from pydantic import Field, ValidationError

from loopline.agents.errors import AgentError
from loopline.agents.records import Record, Run
from loopline.agents.workflows import prompt_hashes, workflows
from loopline.bus import OUTAGE, Bus, BusError, ContentWriter, schedules
from loopline.bus.bounded import Remembered
from loopline.workers.admission import admission_of, publish_prompts

if TYPE_CHECKING:
    from loopline.bus.schedules import StoredSchedule

log = structlog.get_logger("loopline.workers.schedules")

LATE_SECONDS = 60.0
"""Delay after which a tick is considered missed, since no worker was running."""
MAX_LOGGED = 1_024
"""Maximum number of ticks whose errors are remembered, so that they are not logged again."""
SCHEDULE_TAG, TICK_TAG = "schedule", "tick"

Missed = Literal["once", "skip"]


class Schedule(Record):
    """A run and the times at which to start it."""

    cron: str = Field(max_length=128)
    """Five fields: minute, hour, day, month, weekday."""
    timezone: str = Field(default="UTC", max_length=64)
    missed: Missed = "once"
    """Ticks at which no worker was running: `once` runs the last of them late, `skip` runs none."""
    added: float
    """Unix seconds."""
    run: Run
    """The run as it was when the schedule was added; each tick's run has its own id and times."""

    def next_tick(self, after: float) -> float:
        """The next tick after a time, in Unix seconds. Raises ValueError if there is none."""
        return self._tick(after, reverse=False)

    def last_tick(self, until: float) -> float:
        """The last tick up to a time, in Unix seconds. Raises ValueError if there is none."""
        return self._tick(until + 1.0, reverse=True)

    def _tick(self, seconds: float, *, reverse: bool) -> float:
        zone = zone_of(self.timezone)
        moment = datetime.fromtimestamp(seconds, UTC).astimezone(zone).replace(microsecond=0)
        try:
            return next(CronSim(self.cron, moment, reverse)).timestamp()
        except (CronSimError, StopIteration) as error:
            raise ValueError(
                f"{self.cron!r} is not a cron schedule that ever fires: use five fields (minute "
                "hour day month weekday), such as '0 7 * * *'"
            ) from error


def zone_of(name: str) -> tzinfo:
    """The time zone with this name. Raises ValueError."""
    try:
        return UTC if name == "UTC" else ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError(f"there is no time zone {name[:64]!r}; try Europe/Berlin") from error


@dataclass
class Memory:
    """One process's memory of handled schedules."""

    logged: Remembered[tuple[str, float], None] = field(
        default_factory=lambda: Remembered(MAX_LOGGED)
    )
    """Ticks whose errors were logged."""
    contents: ContentWriter = field(default_factory=ContentWriter)


async def fire_due(bus: Bus, memory: Memory | None = None) -> int:
    """Admit the run of every tick that is due; returns the number of runs admitted here."""
    memory, count = memory or Memory(), 0
    for stored in await schedules.due(bus):
        count += await _fire(bus, stored, memory)
    return count


async def _fire(bus: Bus, stored: StoredSchedule, memory: Memory) -> bool:
    try:
        schedule = Schedule.model_validate_json(stored.body)
        now = bus.clock.now()
        tick = max(stored.tick, schedule.last_tick(now))
        following = schedule.next_tick(max(now, tick))
        late = now - tick > LATE_SECONDS
        if late and schedule.missed == "skip":
            if await schedules.fire(bus, stored, following, None):
                log.warning("tick missed", schedule=stored.name, tick=_iso(tick))
            return False
        run = run_of_tick(bus, stored.name, schedule, tick)
        handoffs = workflows.get(run.workflow).first(run)
        await publish_prompts(bus, memory.contents, run)
        return await schedules.fire(bus, stored, following, admission_of(run, handoffs))
    except (AgentError, ValidationError, ValueError, BusError) as error:
        # Another worker may have the workflow, or room: the tick stays due.
        if (stored.name, stored.tick) not in memory.logged:
            memory.logged.set((stored.name, stored.tick), None)
            log.warning("schedule not fired", schedule=stored.name, why=str(error)[:500])
        return False


def run_of_tick(bus: Bus, name: str, schedule: Schedule, tick: float) -> Run:
    """The run of one tick. Raises `AgentError` for a workflow that this process does not have."""
    template, now = schedule.run, bus.clock.now()
    prompts = prompt_hashes(
        template.workflow, template.prompt_files, template.task.environment, template.options
    )
    return template.model_copy(
        update={
            "id": _run_id(bus, f"{name}\n{schedule.added}\n{tick}", tick),
            "created": now,
            "deadline": now + template.budget.seconds,
            "prompts": prompts,
            "tags": {**template.tags, SCHEDULE_TAG: name, TICK_TAG: _iso(tick)},
        }
    )


def _run_id(bus: Bus, text: str, tick: float) -> str:
    """A UUIDv7 that follows from the tick, in the shard of the schedules."""
    shard = schedules.home(bus)
    for number in range(100_000):
        digest = hashlib.sha256(f"{text}\n{number}".encode()).digest()
        value = int(tick * 1000) << 80 | int.from_bytes(digest[:10])
        value = value & ~(0xF << 76) | 7 << 76
        value = value & ~(0x3 << 62) | 2 << 62
        run_id = str(uuid.UUID(int=value))
        if bus.keys.shard_of(run_id) == shard:
            return run_id
    raise AssertionError("no id belongs to the shard")


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class ScheduleServer:
    """Fires due ticks until drained; any number of servers may run in parallel."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._drained = asyncio.Event()
        self._memory = Memory()

    def drain(self) -> None:
        self._drained.set()

    async def run(self) -> None:
        failures = 0
        while not self._drained.is_set():
            try:
                await fire_due(self._bus, self._memory)
                failures = 0
            except OUTAGE as error:
                failures += 1
                if failures & (failures - 1) == 0:
                    log.warning("schedules not checked", error=str(error), tries=failures)
            pause = 2 * self._bus.settings.sweep_seconds * random.uniform(0.8, 1.2)
            try:
                await asyncio.wait_for(self._drained.wait(), pause)
            except TimeoutError:
                continue
