"""`bench gateway-fuzz`: send, count, look at the memory."""

from __future__ import annotations

import asyncio
import gc
import random
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import structlog
from pydantic import Field

from loopline.bench.proofs.gateway_fuzz.deployment import Running, running
from loopline.bench.proofs.gateway_fuzz.requests import FuzzRequest, Requests
from loopline.bench.proofs.gateway_fuzz.targets import CLOSED, Answer, InProcess, Socket, Target
from loopline.bench.proofs.harness import Options, Progress, Proof, Seed, random_seed
from loopline.bench.proofs.outcome import Measurement, Outcome, Violation, measured

SOCKET_SHARE = 0.05
AT_ONCE = 48
WARM_UP_SHARE, MIN_WARM_UP = 0.2, 2_000
"""Of the requests, before the memory is looked at for the first time: caches fill."""
MAX_GROWTH_MB = 32.0
_MB = 1e-6
_SAY_EVERY = 50_000


class GatewayFuzzOptions(Options):
    """Sends valid, mutated and hostile requests of two callers: to the application in this process,
    and some of them by the socket to a gateway's process, where bytes are wrong, too.

    No request may be answered 500, raise, hang, or give one caller what is another's, and at the
    end neither process may hold more memory than after the first requests.
    """

    requests: int = Field(default=100_000, ge=1_000, le=1_000_000_000)
    """Requests to send."""
    seed: Seed = Field(default_factory=random_seed)
    """Seed of the requests; random without it."""


@dataclass
class Counts:
    """What came of the requests."""

    statuses: dict[str, Counter[int]] = field(default_factory=dict[str, Counter[int]])
    """By target."""
    violations: list[Violation] = field(default_factory=list[Violation])
    slowest: float = 0.0
    slowest_request: str = ""
    sent: int = 0

    def add(self, target: str, request: FuzzRequest, answer: Answer) -> None:
        self.sent += 1
        self.statuses.setdefault(target, Counter())[answer.status] += 1
        if answer.seconds > self.slowest:
            self.slowest, self.slowest_request = answer.seconds, f"{target}: {request}"
        if answer.defect:
            rule = "hangs" if answer.defect.startswith("no end") else "errors"
            self.violations.append(Violation(rule, f"{answer.defect}: {request}", target))
        elif answer.status == 500:
            self.violations.append(Violation("errors", f"answered 500: {request}", target))
        elif request.foreign is not None and 200 <= answer.status < 300:
            self.violations.append(Violation("leaks", f"{answer.status}: {request}", target))


@dataclass(frozen=True)
class Memory:
    """Resident bytes."""

    application: int
    gateway: int
    redis: int

    @classmethod
    async def now(cls, place: Running) -> Memory:
        gc.collect()
        info = await place.bus.redis.info("memory")
        return cls(
            psutil.Process().memory_info().rss,
            psutil.Process(place.gateway_pid).memory_info().rss,
            int(info["used_memory"]),
        )


async def attack(
    folder: Path, options: GatewayFuzzOptions, progress: Progress
) -> tuple[Counts, Memory, Memory]:
    """What was answered, and the memory after the warm-up and at the end."""
    counts = Counts()
    async with running(folder) as place:
        source = random.Random(options.seed)
        requests = Requests(source, place.keys)
        targets = (InProcess(place.app, source), Socket(place.url, source))
        warm_up = min(
            max(MIN_WARM_UP, int(WARM_UP_SHARE * options.requests)), options.requests // 2
        )
        await _send(counts, requests, targets, source, warm_up, progress)
        before = await Memory.now(place)
        await _send(counts, requests, targets, source, options.requests - warm_up, progress)
        return counts, before, await Memory.now(place)


async def _send(
    counts: Counts, requests: Requests, targets: Sequence[Target], source: random.Random,
    number: int, progress: Progress,
) -> None:  # fmt: skip
    numbers = iter(range(number))
    names = ("application", "socket")

    async def work() -> None:
        for _ in numbers:
            request, place = requests.next(), int(source.random() < SOCKET_SHARE)
            answer = await targets[place].send(request)
            counts.add(names[place], request, answer)
            if answer.run_id is not None and request.foreign is None:
                requests.known[request.caller].add(answer.run_id, source)
            if counts.sent % _SAY_EVERY == 0:
                progress.say(f"{counts.sent:,} sent, {len(counts.violations)} violations")

    await asyncio.gather(*(work() for _ in range(AT_ONCE)))


def run(options: GatewayFuzzOptions, progress: Progress) -> Outcome:
    """Raises `BenchError`."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    outcome = Outcome(about=f"Seed {options.seed}: {options.requests:,} requests of two callers.")
    progress.outcome = lambda: outcome
    progress.say(outcome.about)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="bench-gateway-fuzz-") as folder:
        counts, before, after = asyncio.run(attack(Path(folder), options, progress))
    outcome.violate(counts.violations)
    outcome.measurements = [*_bars(counts, before, after), *_counts(counts)]
    outcome.facts = {
        "requests_per_second": round(counts.sent / (time.monotonic() - began)),
        "slowest_request": counts.slowest_request[:400],
    }
    return outcome


def _bars(counts: Counts, before: Memory, after: Memory) -> list[Measurement]:
    broken = Counter(violation.rule for violation in counts.violations)
    figures = [
        measured(rule, float(broken[rule]), bar=0.0, better="lower")
        for rule in ("errors", "hangs", "leaks")
    ]
    figures.append(measured("slowest", counts.slowest, "s"))
    for name in ("application", "gateway"):
        first, last = float(getattr(before, name)), float(getattr(after, name))
        figures += [
            measured(f"{name} before", first, "MB", scale=_MB),
            measured(f"{name} after", last, "MB", scale=_MB),
            measured(f"{name} grew", last - first, "MB", scale=_MB, bar=MAX_GROWTH_MB,
                     better="lower"),
        ]  # fmt: skip
    figures.append(measured("redis after", float(after.redis), "MB", scale=_MB))
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
