"""Runs whose branches all call at once, while workers die and pause and Redis restarts."""

from __future__ import annotations

import asyncio
import math
import os
import random
import signal
import time
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path

from loopline.agents.errors import RequestFailed
from loopline.agents.records import Budget, Message, Run
from loopline.bench.proofs.budgets.provider import POOL, serve
from loopline.bus import BudgetExceeded, Bus, BusSettings, Inbox, Limits, RequestError, RunEnded
from loopline.bus.budgets import DAY, LARGEST, counts, day_of, set_limits
from loopline.runtime.client.client import Client
from loopline.testing import RedisProcess
from loopline.workers.host import BusHost
from loopline.workers.messages import registry

WORKERS = 3
RUNS_IN_FLIGHT = 12
RUN_SECONDS = 1_800.0
RUNS_PER_KILL, RUNS_PER_RESTART = 4, 30
"""Mean numbers of ended runs before a worker is killed or paused, and before Redis restarts."""
LONGEST_QUIET = 16.0
"""Seconds after which an attack happens even if few runs have ended."""


@dataclass
class Attacks:
    """Attacks that were made."""

    kills: int = 0
    pauses: int = 0
    restarts: int = 0


@dataclass
class Result:
    """State of the bus at the end."""

    spent: dict[str, int] = field(default_factory=dict[str, int])
    """Micro-dollars that were charged, by run."""
    reserved: dict[str, int] = field(default_factory=dict[str, int])
    """Micro-dollars and tokens that are still reserved in the budgets of ended runs."""
    day: tuple[Limits, Limits] = (Limits(), Limits())
    """Spent and reserved amounts of all runs on the day, or days."""
    answers: int = 0
    hedged: int = 0
    """Second requests in the ledger."""
    refused: int = 0
    """Runs that asked for more than they may spend."""
    attacks: Attacks = field(default_factory=Attacks)


class EndedRuns:
    """Counts runs that have ended. Attacks follow this count, so that their number per run is the
    same on a slow machine as on a fast one."""

    def __init__(self) -> None:
        self.all_ended = False
        """Whether no run is left."""
        self._count = 0
        self._waiting: dict[asyncio.Event, float] = {}

    def add(self) -> None:
        self._count += 1
        for event, goal in self._waiting.items():
            if self._count >= goal:
                event.set()

    def finish(self) -> None:
        self.all_ended = True
        for event in self._waiting:
            event.set()

    async def wait_for(self, runs: float, *, seconds: float = LONGEST_QUIET) -> None:
        """Wait until `runs` more have ended, or all have, or `seconds` have passed."""
        event = asyncio.Event()
        self._waiting[event] = self._count + runs
        if self.all_ended:
            event.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await event.wait()
        del self._waiting[event]


class Crew:
    """Workers that are killed and paused again and again."""

    def __init__(
        self,
        settings: BusSettings,
        book: Path,
        rng: random.Random,
        attacks: Attacks,
        *,
        hedge: bool,
    ) -> None:
        self._settings = settings
        self._book = book
        self._rng = rng
        self._attacks = attacks
        self._hedge = hedge
        self._context = get_context("forkserver")
        # Preload this program too, which each copy would otherwise import again.
        self._context.set_forkserver_preload(["__main__", serve.__module__])

    async def work(self, ended: EndedRuns) -> None:
        await asyncio.gather(*(self._slot(ended) for _ in range(WORKERS)))

    async def _slot(self, ended: EndedRuns) -> None:
        while not ended.all_ended:
            process = await asyncio.to_thread(self._start)
            try:
                if self._rng.random() < 0.15 and await self._lives(process, ended):
                    os.kill(process.pid or 0, signal.SIGSTOP)
                    self._attacks.pauses += 1
                    # Longer than the worker's lease.
                    await ended.wait_for(math.inf, seconds=2 * self._settings.lease_seconds)
                    os.kill(process.pid or 0, signal.SIGCONT)
                if await self._lives(process, ended):
                    self._attacks.kills += 1
            finally:
                process.kill()
                process.join()

    async def _lives(self, process: BaseProcess, ended: EndedRuns) -> bool:
        """Wait for some more runs to end; return whether the process is alive and runs are left."""
        await ended.wait_for(self._rng.uniform(0.1, 1.9) * RUNS_PER_KILL * WORKERS)
        return process.is_alive() and not ended.all_ended

    def _start(self) -> BaseProcess:
        seed = self._rng.randrange(2**31)
        process = self._context.Process(
            target=serve, args=(self._settings, self._book, seed, self._hedge), daemon=True
        )
        process.start()
        return process


async def _restart(
    server: RedisProcess, rng: random.Random, attacks: Attacks, ended: EndedRuns
) -> None:
    while not ended.all_ended:
        await ended.wait_for(rng.uniform(0.5, 1.5) * RUNS_PER_RESTART)
        if not ended.all_ended:
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)
            attacks.restarts += 1


async def play(
    settings: BusSettings,
    server: RedisProcess,
    book: Path,
    *,
    runs: int,
    branches: int,
    micro_dollars: int,
    rng: random.Random,
    hedge: bool = False,
) -> Result:
    """Play the runs, then read the spent and reserved amounts."""
    result, ended = Result(), EndedRuns()
    crew = Crew(settings, book, rng, result.attacks, hedge=hedge)

    ids: list[str] = []
    first_day = day_of(time.time())

    async def work() -> None:
        try:
            await _ask_all(settings, runs, branches, micro_dollars, result, ids, ended)
        finally:
            ended.finish()

    await asyncio.gather(work(), crew.work(ended), _restart(server, rng, result.attacks, ended))
    await _read(settings, ids, first_day, result)
    return result


async def _ask_all(
    settings: BusSettings,
    runs: int,
    branches: int,
    micro_dollars: int,
    result: Result,
    ids: list[str],
    ended: EndedRuns,
) -> None:
    places = asyncio.Semaphore(RUNS_IN_FLIGHT)
    async with (
        Client.connect(settings) as client,
        Bus(settings, registry()) as bus,
        Inbox(bus) as inbox,
        asyncio.TaskGroup() as group,
    ):
        # Counted in addition to each run's own: a limit that is never reached.
        await set_limits(bus, DAY, Limits(micro_dollars=LARGEST))

        async def one_run(run: Run) -> None:
            try:
                await _ask_branches(bus, inbox, run, branches, result)
            finally:
                places.release()
            ended.add()

        for _ in range(runs):
            await places.acquire()
            budget = Budget(seconds=RUN_SECONDS, micro_dollars=micro_dollars)
            run = client.new_run("Ask.", workflow="solo", policies={"solo": POOL}, budget=budget)
            await client.submit(run)
            ids.append(run.id)
            group.create_task(one_run(run))


async def _read(settings: BusSettings, ids: list[str], first_day: int, result: Result) -> None:
    """Read the counts of the bus, after all work and attacks have ended."""
    async with Bus(settings, registry()) as bus:
        for run_id in ids:
            key = bus.keys.shard_of(run_id).run(run_id)
            names = ["spent:micro", "held:micro", "held:tokens"]
            values = await bus.redis.hmget(key, names)  # pyright: ignore
            spent, *reservations = (int(value or 0) for value in values)
            result.spent[run_id], result.reserved[run_id] = spent, sum(reservations)
            result.hedged += sum(b'"hedge":"second"' in line for line in await bus.usage(run_id))
        for day in range(first_day, day_of(time.time()) + 1):
            spent_then, reserved_then = await counts(bus, DAY, day)
            result.day = result.day[0] + spent_then, result.day[1] + reserved_then


async def _ask_branches(bus: Bus, inbox: Inbox, run: Run, branches: int, result: Result) -> None:
    """Send calls in parallel branches, like the steps of a team, and end the run like its
    workers."""

    async def branch(number: int) -> None:
        while True:
            host = BusHost(inbox, run, "solo", 0, number)
            try:
                await host.complete([Message(role="user", content="What is 6 * 7?")])
            except (RequestFailed, RequestError):
                continue  # it may be temporary
            except BudgetExceeded as error:
                if await bus.end_run(run.id, "budget", str(error)):
                    result.refused += 1
                return
            except RunEnded:
                return
            result.answers += 1
            return

    await asyncio.gather(*(branch(number) for number in range(branches)))
    await bus.end_run(run.id, "answered", "all branches are answered")
