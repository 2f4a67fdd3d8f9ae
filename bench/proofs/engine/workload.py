"""The requests of `bench engine`, and their measurements."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Protocol

ROLE = "You solve one part of a larger task. " + " ".join(
    f"Rule {number}: read the numbers as they are written, name the step, then carry it out."
    for number in range(1, 11)
)
"""Prompt of about 300 tokens for the micro models' tokenizer; every request starts with it."""

PER_PLACE = 3
"""Requests for each place: enough that places are refilled repeatedly."""


@dataclass(frozen=True)
class Ask:
    """One request: a user's message, since not every chat template supports a system message."""

    text: str
    max_tokens: int


@dataclass
class Timing:
    """Times in seconds on one clock: when a request was sent, which is when its place became free,
    and when each of its tokens arrived (or the whole answer, if it arrives at once)."""

    sent: float
    tokens: list[float] = field(default_factory=list[float])
    prompt: int = 0
    reused: int = 0
    """Prompt tokens that had been computed before."""


@dataclass
class Measured:
    """One run of a workload through one peer."""

    seconds: float
    tokens: int
    timings: list[Timing] = field(default_factory=list[Timing])
    """Timings of the requests; empty if a peer reports no times."""

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / self.seconds

    @property
    def first_token(self) -> list[float]:
        return [timing.tokens[0] - timing.sent for timing in self.timings if timing.tokens]

    @property
    def per_token(self) -> list[float]:
        return [b - a for timing in self.timings for a, b in pairwise(timing.tokens)]

    @property
    def whole(self) -> list[float]:
        return [timing.tokens[-1] - timing.sent for timing in self.timings if timing.tokens]


class Peer(Protocol):
    """Peer that serves the model."""

    name: str
    about: str

    async def start(self) -> None: ...

    async def run(self, asks: Sequence[Ask], concurrency: int) -> Measured:
        """Answer all of them, with at most `concurrency` in progress at a time."""
        ...

    async def close(self) -> None: ...


def asks(concurrency: int, seed: int) -> list[Ask]:
    """Return questions of mixed lengths, with answers of mixed lengths; the same for the same
    seed."""
    rng = random.Random(f"{concurrency}/{seed}")
    return [
        Ask(
            f"{ROLE}\n\nCase {rng.randrange(10_000)}: "
            + " ".join(str(rng.randrange(1000)) for _ in range(rng.randrange(2, 12))),
            rng.randrange(32, 129),
        )
        for _ in range(max(4, PER_PLACE * concurrency))
    ]


async def closed_loop(
    asks: Sequence[Ask],
    concurrency: int,
    ask: Callable[[Ask, Timing], AsyncIterator[int]],
) -> Measured:
    """Keep `concurrency` requests in flight. `ask` yields the number of tokens that have just
    arrived."""
    remaining = iter(asks)
    timings: list[Timing] = []

    async def place() -> None:
        for item in remaining:
            timing = Timing(time.perf_counter())
            timings.append(timing)
            async for count in ask(item, timing):
                timing.tokens.extend([time.perf_counter()] * count)

    started = time.perf_counter()
    await asyncio.gather(*(place() for _ in range(concurrency)))
    seconds = time.perf_counter() - started
    return Measured(seconds, sum(len(item.tokens) for item in timings), timings)
