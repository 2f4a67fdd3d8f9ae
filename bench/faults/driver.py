"""One attack from start to evidence: admit, strike, come to rest, drain, collect."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench.bus_bench.redis_process import Persistence, RedisProcess
from bench.errors import BenchError
from bench.faults.chaos import Chaos
from bench.faults.collection import WORK_STREAMS, gather
from bench.faults.evidence import Evidence
from bench.faults.fleet import STORE, delegates
from bench.faults.lookout import LOOK_SECONDS, Lookout
from bus import OUTAGE, Bus, BusSettings, BusUnavailable, Overloaded
from runtime.client import Client

LEASE_SECONDS = 2.0
IN_FLIGHT = 128
RUN_SECONDS = 6 * 3600.0
"""No run may end by its deadline: every one of them has to be answered."""
MAX_ATTEMPTS = 100


@dataclass(frozen=True, slots=True)
class Attack:
    """What one attack left."""

    evidence: Evidence
    struck: Counter[str]
    died: list[str]
    """Workers that ended without being struck."""
    seconds: float


def bus_settings(url: str) -> BusSettings:
    """Short times, so that much happens; the audit stream on."""
    return BusSettings(
        redis_url=url,
        lease_seconds=LEASE_SECONDS,
        block_seconds=0.5,
        sweep_seconds=0.2,
        retry_base_seconds=0.1,
        max_attempts=MAX_ATTEMPTS,
        history=True,
    )


class Driver:
    """Runs one attack in `folder`."""

    def __init__(
        self,
        folder: Path,
        *,
        runs: int,
        seed: int,
        workers: int,
        rate: float,
        persistence: Persistence,
        progress: Callable[[str], None],
        strike: bool = True,
    ) -> None:
        self._runs = runs
        self._seed = seed
        self._rate = rate
        self._progress = progress
        self._strike = strike
        self._server = RedisProcess(folder / "redis", persistence)
        self._settings = bus_settings(self._server.url)
        self._fleet = delegates(workers, self._settings, folder, seed)
        self._lookout = Lookout(self._fleet, WORK_STREAMS)
        self._store = folder / STORE
        self._limit = 120.0 + 2.0 * runs + runs / rate
        self._accepted: list[str] = []
        self._in_flight = 0
        self._counted = asyncio.Condition()

    async def run(self) -> Attack:
        """Raises `BenchError` if a process can't be started or never drains."""
        began = time.monotonic()
        chaos = Chaos(self._seed, self._fleet, self._server, self._lookout, LEASE_SECONDS)
        async with self._fleet.on(self._server), Client.connect(self._settings) as client:
            await self._under_attack(client, chaos)
            consumers = await self._lookout.at_rest(client.bus)
            alive = [slot.name for slot in self._fleet.slots]
            await self._fleet.drain()
            evidence = await gather(
                client.bus,
                self._store,
                seed=self._seed,
                accepted=self._accepted,
                endless=sorted(self._lookout.endless),
                live_consumers=consumers,
                live_workers=alive,
            )
        return Attack(evidence, chaos.struck, self._lookout.died, time.monotonic() - began)

    async def _under_attack(self, client: Client, chaos: Chaos) -> None:
        enough = asyncio.Event()
        watching = asyncio.create_task(self._watch(client.bus))
        admitting = asyncio.create_task(self._admit(client))
        striking = asyncio.create_task(chaos.run(enough) if self._strike else enough.wait())
        try:
            async with asyncio.timeout(self._limit):
                await admitting
                async with self._counted:
                    await self._counted.wait_for(lambda: self._in_flight == 0)
        except TimeoutError:
            self._progress(f"{self._in_flight} runs have not ended in {self._limit:.0f} s")
        finally:
            enough.set()
            await striking
            for task in (admitting, watching):
                task.cancel()
            await asyncio.gather(admitting, watching, return_exceptions=True)

    async def _admit(self, client: Client) -> None:
        """At a steady rate, held back when too much is in flight."""
        questions = random.Random(self._seed)
        start = time.monotonic()
        for index in range(self._runs):
            wait = start + index / self._rate - time.monotonic()
            if wait > 0:
                await asyncio.sleep(wait)
            async with self._counted:
                await self._counted.wait_for(lambda: self._in_flight < IN_FLIGHT)
            await self._submit(client, question(questions), stream=questions.random() < 0.2)

    async def _submit(self, client: Client, prompt: str, *, stream: bool) -> None:
        run = client.new_run(prompt, stream=stream, seed=self._seed)
        budget = run.budget.model_copy(update={"seconds": RUN_SECONDS})
        run = run.model_copy(update={"budget": budget, "deadline": run.created + RUN_SECONDS})
        while True:
            try:
                await client.submit(run)
            except (BusUnavailable, Overloaded):
                await asyncio.sleep(LOOK_SECONDS)  # the same run again: admission is idempotent
            else:
                self._accepted.append(run.id)
                self._in_flight += 1
                return

    async def _watch(self, bus: Bus) -> None:
        """Keep the picture of who is ready and what is in flight."""
        looks = 0
        while True:
            await self._lookout.look(bus)
            with contextlib.suppress(*OUTAGE):
                # Read before the count: what is admitted in between counts as in flight still.
                accepted = len(self._accepted)
                active = len(await bus.active_runs())
                async with self._counted:
                    self._in_flight = active + len(self._accepted) - accepted
                    self._counted.notify_all()
                if looks % 8 == 0:
                    done = max(0, len(self._accepted) - self._in_flight)
                    self._progress(f"{done} of {self._runs} runs ended, {active} in flight")
            looks += 1
            await asyncio.sleep(LOOK_SECONDS)


def question(source: random.Random) -> str:
    """Arithmetic that the scripted planner hands over, some of it in several parts."""
    numbers = [source.randint(2, 60) for _ in range(source.randint(2, 4))]
    signs = [source.choice("+-*") for _ in numbers[1:]]
    text = str(numbers[0])
    for sign, number in zip(signs, numbers[1:], strict=True):
        text += f" {sign} {number}"
    return f"What is {text}?"


def require_persistence(appendfsync: str) -> Persistence:
    """Raises `BenchError` for anything but `always` and `everysec`."""
    if appendfsync == "always":
        return "always"
    if appendfsync == "everysec":
        return "everysec"
    raise BenchError(f"--appendfsync {appendfsync!r}: choose always or everysec")
