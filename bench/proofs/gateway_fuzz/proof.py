"""`bench gateway-fuzz`: send requests, count the answers, watch the memory."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import random
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import psutil
import structlog
import uvloop
from pydantic import Field

from loopline.bench.proofs.gateway_fuzz.counts import Checkpoint, Counts, read_checkpoint
from loopline.bench.proofs.gateway_fuzz.deployment import Running, running
from loopline.bench.proofs.gateway_fuzz.requests import Requests
from loopline.bench.proofs.gateway_fuzz.targets import CLOSED, InProcess, Socket, Target
from loopline.bench.proofs.harness import Options, Progress, Proof, random_seed
from loopline.bench.proofs.outcome import Measurement, Outcome, measured
from loopline.runtime.config.options import Option
from loopline.trainers.core.json_records import write_record

AT_ONCE = 48
WARM_UP_SHARE, MIN_WARM_UP = 0.2, 2_000
"""Share of the requests (and least number) sent before the memory is first measured, because caches
fill up."""
MAX_GROWTH_MB = 32.0
_MB = 1e-6
BATCH = 5_000
"""Requests between two checkpoints: the most that Ctrl-C loses."""


class GatewayFuzzOptions(Options):
    """Sends valid, mutated and hostile requests of two callers: to the application in this process,
    and some of them through the socket to a gateway's process, with invalid bytes, too.

    No request may be answered 500, raise, hang, or give one caller another's data, and at the end
    neither process may use more memory than after the first requests.
    """

    requests: int = Field(default=100_000, ge=1_000, le=1_000_000_000)
    """Requests to send."""
    seed: Annotated[int | None, Option(default="random, or the checkpoint's")] = None
    """Seed of the requests."""
    socket_share: float = Field(default=0.05, ge=0, le=1)
    """Share of them that go through the socket to a gateway's process."""
    checkpoint: Path | None = None
    """File with the results of each 5,000 requests; the same command resumes it."""


@dataclass(frozen=True)
class Memory:
    """Resident bytes; for this process, without the free memory of its allocator."""

    application: int
    gateway: int
    redis: int

    @classmethod
    async def now(cls, place: Running) -> Memory:
        gc.collect()
        _trim()
        info = await place.bus.redis.info("memory")
        return cls(
            psutil.Process().memory_info().rss,
            psutil.Process(place.gateway_pid).memory_info().rss,
            int(info["used_memory"]),
        )

    def __sub__(self, before: Memory) -> dict[str, int]:
        return {
            name: getattr(self, name) - getattr(before, name) for name in ("application", "gateway")
        }


def _trim() -> None:
    """Return free memory to the system. After bodies of all sizes, glibc has up to 30 MB of free
    memory in 25 MB of used memory, in varying amounts, which is not growth."""
    with suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL("libc.so.6").malloc_trim(0)


@dataclass
class Attack:
    """Sends the requests, and adds the answers to the counts."""

    options: GatewayFuzzOptions
    seed: int
    counts: Counts
    progress: Progress

    async def run(self, folder: Path) -> Memory:
        """Send the requests; return the memory at the end."""
        counts, goal = self.counts, self.options.requests
        async with running(folder) as place:
            # A resumed proof does not send the first requests again.
            source = random.Random(f"{self.seed}/{counts.sent}")
            requests = Requests(source, place.keys)
            targets = (InProcess(place.app, source), Socket(place.url, source))
            left = goal - counts.sent
            warm_up = min(max(MIN_WARM_UP, int(WARM_UP_SHARE * left)), left // 2)
            await self._send(requests, targets, source, warm_up)
            before = await Memory.now(place)
            await self._send(requests, targets, source, goal - counts.sent)
            after = await Memory.now(place)
            counts.grew(after - before)
            self._keep()
            return after

    async def _send(
        self, requests: Requests, targets: Sequence[Target], source: random.Random, number: int
    ) -> None:
        counts, numbers, names = self.counts, iter(range(number)), ("application", "socket")
        began, earlier = time.monotonic(), counts.seconds

        async def work() -> None:
            for _ in numbers:
                request = requests.next()
                place = int(source.random() < self.options.socket_share)
                answer = await targets[place].send(request)
                counts.add(names[place], request, answer)
                if answer.run_id is not None and request.foreign is None:
                    requests.known[request.caller].add(answer.run_id, source)
                if counts.sent % BATCH == 0:
                    counts.seconds = earlier + time.monotonic() - began
                    self._keep()

        await asyncio.gather(*(work() for _ in range(AT_ONCE)))
        counts.seconds = earlier + time.monotonic() - began

    def _keep(self) -> None:
        counts = self.counts
        if self.options.checkpoint is not None:
            write_record(self.options.checkpoint, Checkpoint.of(self.seed, counts))
        self.progress.say(
            f"{counts.sent:,} sent, {len(counts.violations)} violations, "
            f"{counts.sent / max(counts.seconds, 1e-9):.0f} a second"
        )


def run(options: GatewayFuzzOptions, progress: Progress) -> Outcome:
    """Raises `BenchError`."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    path = options.checkpoint
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
    saved = None if path is None else read_checkpoint(path, options.seed)
    seed = saved.seed if saved else random_seed() if options.seed is None else options.seed
    counts = saved.counts if saved else Counts()
    outcome = Outcome(about=f"Seed {seed}: {options.requests:,} requests of two callers.")
    progress.outcome = lambda: outcome
    progress.say(outcome.about)
    if saved:
        progress.say(f"continuing after {counts.sent:,} of them in {path}")
    after: Memory | None = None
    if counts.sent < options.requests:
        with tempfile.TemporaryDirectory(prefix="bench-gateway-fuzz-") as folder:
            after = uvloop.run(Attack(options, seed, counts, progress).run(Path(folder)))
    outcome.violate(counts.violations)
    outcome.measurements = [*_bars(counts, after), *_counts(counts)]
    outcome.facts = {
        "requests_per_second": round(counts.sent / max(counts.seconds, 1e-9)),
        "slowest_request": counts.slowest_request[:400],
    }
    return outcome


def _bars(counts: Counts, after: Memory | None) -> list[Measurement]:
    broken = Counter(violation.rule for violation in counts.violations)
    figures = [
        measured(rule, float(broken[rule]), bar=0.0, better="lower")
        for rule in ("errors", "hangs", "leaks")
    ]
    figures.append(measured("slowest", counts.slowest, "s"))
    figures += [
        measured(f"{name} grew", float(bytes_), "MB", scale=_MB, bar=MAX_GROWTH_MB, better="lower")
        for name, bytes_ in counts.grown.items()
    ]
    if after is not None:
        figures += [
            measured(f"{name} after", float(getattr(after, name)), "MB", scale=_MB)
            for name in ("application", "gateway", "redis")
        ]
    return figures


def _counts(counts: Counts) -> list[Measurement]:
    return [
        measured("answers", float(number), group=target, subject=str(status or "closed"))
        for target, statuses in sorted(counts.statuses.items())
        for status, number in sorted(statuses.items(), key=lambda item: item[0] or CLOSED)
    ]


PROOF = Proof(
    name="gateway-fuzz",
    title="hostile requests to a gateway",
    options=GatewayFuzzOptions,
    minutes=lambda options: 0.5 + options.requests / 25_000,
    run=run,
)
