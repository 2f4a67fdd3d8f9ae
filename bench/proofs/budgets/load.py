"""Runs whose branches all ask at once, while workers die and pause and Redis restarts."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path

from loopline.agents.errors import RequestFailed
from loopline.agents.records import Budget, Message, Run
from loopline.bench.proofs.budgets.provider import POOL, serve
from loopline.bus import BudgetExceeded, Bus, BusSettings, Inbox, Limits, RequestError, RunEnded
from loopline.bus.budgets import DAY, LARGEST, counts, set_limits
from loopline.runtime.client.client import Client
from loopline.testing import RedisProcess
from loopline.workers.host import BusHost
from loopline.workers.messages import registry

WORKERS = 3
RUNS_IN_FLIGHT = 12
RUN_SECONDS = 1_800.0
RESTART_SECONDS = 20.0
"""Between two restarts of Redis, on average."""


@dataclass
class Attacks:
    """What was done."""

    kills: int = 0
    pauses: int = 0
    restarts: int = 0


@dataclass
class Result:
    """What the bus knows at the end."""

    spent: dict[str, int] = field(default_factory=dict[str, int])
    """Micro-dollars that were charged, by run."""
    reserved: dict[str, int] = field(default_factory=dict[str, int])
    """And what is still reserved of the ended runs' budgets: micro-dollars and tokens."""
    day: tuple[Limits, Limits] = (Limits(), Limits())
    """Spent and reserved of all runs' day."""
    answers: int = 0
    hedged: int = 0
    """Second requests in the ledger."""
    refused: int = 0
    """Runs that asked for more than they may spend."""
    attacks: Attacks = field(default_factory=Attacks)


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
        self._context.set_forkserver_preload(["loopline.bench.proofs.budgets.provider"])

    async def work(self, finished: asyncio.Event) -> None:
        await asyncio.gather(*(self._slot(finished) for _ in range(WORKERS)))

    async def _slot(self, finished: asyncio.Event) -> None:
        while not finished.is_set():
            process = await asyncio.to_thread(self._start)
            try:
                if self._rng.random() < 0.15 and await self._lives(process, finished):
                    os.kill(process.pid or 0, signal.SIGSTOP)
                    self._attacks.pauses += 1
                    await _sleep(2 * self._settings.lease_seconds, finished)
                    os.kill(process.pid or 0, signal.SIGCONT)
                if await self._lives(process, finished):
                    self._attacks.kills += 1
            finally:
                process.kill()
                process.join()

    async def _lives(self, process: BaseProcess, finished: asyncio.Event) -> bool:
        """After some time; False where it is over."""
        await _sleep(self._rng.uniform(2.0, 16.0), finished)
        return process.is_alive() and not finished.is_set()

    def _start(self) -> BaseProcess:
        seed = self._rng.randrange(2**31)
        process = self._context.Process(
            target=serve, args=(self._settings, self._book, seed, self._hedge), daemon=True
        )
        process.start()
        return process


async def _sleep(seconds: float, finished: asyncio.Event) -> None:
    try:
        async with asyncio.timeout(seconds):
            await finished.wait()
    except TimeoutError:
        pass


async def _restart(
    server: RedisProcess, rng: random.Random, attacks: Attacks, finished: asyncio.Event
) -> None:
    while not finished.is_set():
        await _sleep(rng.uniform(0.5, 1.5) * RESTART_SECONDS, finished)
        if not finished.is_set():
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
    say: Callable[[str], None],
    hedge: bool = False,
) -> Result:
    """Play the runs, and read what is spent and reserved afterwards."""
    result, finished = Result(), asyncio.Event()
    crew = Crew(settings, book, rng, result.attacks, hedge=hedge)

    async def work() -> None:
        try:
            await _ask_all(settings, runs, branches, micro_dollars, result, say)
        finally:
            finished.set()

    await asyncio.gather(
        work(), crew.work(finished), _restart(server, rng, result.attacks, finished)
    )
    return result


async def _ask_all(
    settings: BusSettings,
    runs: int,
    branches: int,
    micro_dollars: int,
    result: Result,
    say: Callable[[str], None],
) -> None:
    places = asyncio.Semaphore(RUNS_IN_FLIGHT)
    done = 0
    ids: list[str] = []
    async with (
        Client.connect(settings) as client,
        Bus(settings, registry()) as bus,
        Inbox(bus) as inbox,
        asyncio.TaskGroup() as group,
    ):
        # Counted in addition to each run's own: a limit that is never reached.
        await set_limits(bus, DAY, Limits(micro_dollars=LARGEST))

        async def one_run(run: Run) -> None:
            nonlocal done
            try:
                await _ask_branches(bus, inbox, run, branches, result)
            finally:
                places.release()
            done += 1
            if done % max(1, runs // 10) == 0:
                say(f"{done:,} of {runs:,} runs ended")

        for _ in range(runs):
            await places.acquire()
            budget = Budget(seconds=RUN_SECONDS, micro_dollars=micro_dollars)
            run = client.new_run("Ask.", workflow="solo", policies={"solo": POOL}, budget=budget)
            await client.submit(run)
            ids.append(run.id)
            group.create_task(one_run(run))
    async with Bus(settings, registry()) as bus:
        for run_id in ids:
            key = bus.keys.shard_of(run_id).run(run_id)
            names = ["spent:micro", "held:micro", "held:tokens"]
            values = await bus.redis.hmget(key, names)  # pyright: ignore
            spent, *reservations = (int(value or 0) for value in values)
            result.spent[run_id], result.reserved[run_id] = spent, sum(reservations)
            result.hedged += sum(b'"hedge":"second"' in line for line in await bus.usage(run_id))
        result.day = await counts(bus, DAY)


async def _ask_branches(bus: Bus, inbox: Inbox, run: Run, branches: int, result: Result) -> None:
    """As the steps of a team that works side by side, and as its workers end it."""

    async def branch(number: int) -> None:
        while True:
            host = BusHost(inbox, run, "solo", 0, number)
            try:
                await host.complete([Message(role="user", content="What is 6 * 7?")])
            except (RequestFailed, RequestError):
                continue  # it may pass
            except BudgetExceeded as error:
                if await bus.end_run(run.id, "budget", str(error)):
                    result.refused += 1
                return
            except RunEnded:
                return
            result.answers += 1
            return

    await asyncio.gather(*(branch(number) for number in range(branches)))
    await bus.end_run(run.id, "answered", "all branches are")
