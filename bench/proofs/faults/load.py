"""The client's side of an attack: questions with known answers, admitted until all are answered."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Awaitable, Callable

from loopline.agents.arithmetic import evaluate, format_number
from loopline.agents.records import JsonObject
from loopline.bench.proofs.faults.followers import Followers
from loopline.bench.proofs.faults.monitor import LOOK_SECONDS
from loopline.bus import OUTAGE, Bus, BusUnavailable, Overloaded
from loopline.runtime.client.client import Client

IN_FLIGHT = 128
FOLLOWED = 0.2
"""Share of the runs that stream and have a follower."""


class RunLoad:
    """Create a load of this many runs, at a steady rate."""

    def __init__(
        self,
        *,
        runs: int,
        seed: int,
        rate: float,
        run_seconds: float,
        progress: Callable[[str], None],
    ) -> None:
        self.accepted: list[str] = []
        self.expected: dict[str, str] = {}
        """Right answer by run."""
        self._runs, self._seed, self._rate = runs, seed, rate
        self._run_seconds = run_seconds
        self._progress = progress
        self._in_flight = 0
        self._counted = asyncio.Condition()

    @property
    def limit(self) -> float:
        """Seconds after which the remaining runs are given up: the checker reports those that have
        not ended."""
        return 240.0 + 2.0 * self._runs + self._runs / self._rate

    async def run_until_ended(
        self, bus: Bus, client: Client, followers: Followers, look: Callable[[], Awaitable[None]]
    ) -> None:
        """Admit all through `client`, and return when the last one has ended; `look` is called
        repeatedly meanwhile."""
        watching = asyncio.create_task(self._watch(bus, look))
        admitting = asyncio.create_task(self._admit(client, followers))
        ended = asyncio.create_task(self._wait_until_ended(admitting))
        try:
            # A failing watcher is an error of the bench, and waiting would not help.
            await asyncio.wait(
                {watching, ended}, timeout=self.limit, return_when=asyncio.FIRST_COMPLETED
            )
            if watching.done():
                watching.result()
            if ended.done():
                ended.result()
            else:
                self._progress(f"{self._in_flight} runs have not ended in {self.limit:.0f} s")
        finally:
            for task in (admitting, watching, ended):
                task.cancel()
            await asyncio.gather(admitting, watching, ended, return_exceptions=True)

    async def _wait_until_ended(self, admitting: asyncio.Task[None]) -> None:
        await admitting
        async with self._counted:
            await self._counted.wait_for(lambda: self._in_flight == 0)

    async def _admit(self, client: Client, followers: Followers) -> None:
        """Admit the runs at a steady rate, or more slowly while too many are in flight."""
        questions = random.Random(self._seed)
        start = time.monotonic()
        for index in range(self._runs):
            wait = start + index / self._rate - time.monotonic()
            if wait > 0:
                await asyncio.sleep(wait)
            async with self._counted:
                await self._counted.wait_for(lambda: self._in_flight < IN_FLIGHT)
            prompt, answer = question(questions)
            stream = questions.random() < FOLLOWED
            run_id = await self._submit(client, prompt, stream=stream)
            self.expected[run_id] = answer
            if stream:
                followers.follow(run_id)

    async def _submit(self, client: Client, prompt: str, *, stream: bool) -> str:
        # The answer must stand alone to be compared with the right one.
        boxed: JsonObject = {"prompts": "mathematics"}
        run = client.new_run(prompt, options=boxed, stream=stream, seed=self._seed)
        budget = run.budget.model_copy(update={"seconds": self._run_seconds})
        deadline = run.created + self._run_seconds
        run = run.model_copy(update={"budget": budget, "deadline": deadline})
        while True:
            try:
                await client.submit(run)
            except (BusUnavailable, Overloaded):
                await asyncio.sleep(LOOK_SECONDS)  # the same run again: admission is idempotent
            else:
                self.accepted.append(run.id)
                self._in_flight += 1
                return run.id

    async def _watch(self, bus: Bus, look: Callable[[], Awaitable[None]]) -> None:
        looks = 0
        while True:
            await look()
            with contextlib.suppress(*OUTAGE):
                # Read before the count: runs that are admitted in between still count as in flight.
                accepted = len(self.accepted)
                active = len(await bus.active_runs())
                async with self._counted:
                    self._in_flight = active + len(self.accepted) - accepted
                    self._counted.notify_all()
                if looks % 8 == 0:
                    done = max(0, len(self.accepted) - self._in_flight)
                    self._progress(f"{done} of {self._runs} runs ended, {active} in flight")
            looks += 1
            await asyncio.sleep(LOOK_SECONDS)


def question(source: random.Random) -> tuple[str, str]:
    """Return arithmetic that the scripted planner delegates, some of it in several parts, and its
    result."""
    numbers = [source.randint(2, 60) for _ in range(source.randint(2, 4))]
    signs = [source.choice("+-*") for _ in numbers[1:]]
    text = str(numbers[0])
    for sign, number in zip(signs, numbers[1:], strict=True):
        text += f" {sign} {number}"
    return f"What is {text}?", format_number(evaluate(text))
