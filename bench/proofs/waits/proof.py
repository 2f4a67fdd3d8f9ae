"""`bench waits`: runs wait for signals, approvals and their time. Workers are killed while the runs
start to wait; then every process and Redis die, seven days pass on Redis' own clock, and everything
restarts: each run must continue once."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from pydantic import Field
from redis.exceptions import RedisError

from loopline.agents.records import Budget
from loopline.bench.errors import BenchError
from loopline.bench.proofs.harness import Options, Progress, Proof, Seed, random_seed
from loopline.bench.proofs.outcome import Outcome, Violation, measured
from loopline.bench.proofs.time_limit import time_limit
from loopline.bench.proofs.waits.worker import DAY, ROLE, SIGNAL, register
from loopline.bus import Bus, BusSettings, BusUnavailable, waits
from loopline.runtime.client.client import Client, steps_of
from loopline.runtime.client.waiting import ApprovalConflict, ApprovalUnknown
from loopline.runtime.errors import UserError
from loopline.testing import RedisProcess, start_worker
from loopline.testing.shifted_clock import ShiftedClock, can_shift_clocks, shifted_clock
from loopline.workers.settings import RoleWorkerSettings

T = TypeVar("T")

WORKERS = 2
DAYS = 7
KINDS = ("signal", "early signal", "expiry", "approval")
SENDERS = 2
"""Number of senders that send each run the same signal."""
LONGEST_SECONDS = 300.0
LEAST_BYTES_BAR = 4_000
_SAMPLE = 50


class WaitsOptions(Options):
    """One quarter of the runs each waits for a signal; for a signal that was sent before; for its
    time; and for an approval."""

    runs: int = Field(default=1_000, ge=8, le=100_000)
    """Runs that wait at the same time."""
    kills: int = Field(default=6, ge=1, le=1_000)
    """Kills of a worker while runs start to wait, and again while they continue."""
    seed: Seed = Field(default_factory=random_seed, ge=0)
    """Seed of the times of the kills."""


@dataclass
class Played:
    """Results of the runs."""

    kinds: dict[str, str]
    """Run → what it waited for."""
    ended: dict[str, tuple[str, int]] = field(default_factory=dict[str, tuple[str, int]])
    """Run → its answer, and the steps of its journal."""
    trajectories: Counter[str] = field(default_factory=Counter[str])
    """How often each run's end was published."""
    bytes_per_wait: int = 0
    active_while_waiting: int = 0
    kills: int = 0

    @property
    def lost(self) -> list[str]:
        """Runs that did not reach the end that their wait leads to."""
        wanted = {
            "signal": "signalled",
            "early signal": "signalled",
            "expiry": "expired",
            "approval": "approved",
        }
        return [
            run_id
            for run_id, kind in self.kinds.items()
            if self.ended.get(run_id, ("", 0))[0] != wanted[kind]
        ]

    @property
    def repeated(self) -> list[str]:
        """Runs that continued more than once."""
        return [
            run_id
            for run_id, kind in self.kinds.items()
            if self.ended.get(run_id, ("", 0))[1] > (1 if kind == "approval" else 2)
            or self.trajectories[run_id] > 1
        ]


class _Crew:
    """The worker processes, and their replacements after kills."""

    def __init__(self, settings: BusSettings, folder: Path) -> None:
        self._settings = [
            RoleWorkerSettings(name=f"waiter-{number}", bus=settings, roles=(ROLE,), concurrency=16)
            for number in range(WORKERS)
        ]
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        self.kills = 0

    def start(self) -> None:
        self._processes = [self._start(number) for number in range(WORKERS)]

    def kill_one(self, rng: random.Random) -> None:
        number = rng.randrange(WORKERS)
        self._kill(self._processes[number])
        self._processes[number] = self._start(number)

    def kill_all(self) -> None:
        for process in self._processes:
            self._kill(process)

    def _kill(self, process: subprocess.Popen[bytes]) -> None:
        process.kill()
        process.wait()
        self.kills += 1

    def _start(self, number: int) -> subprocess.Popen[bytes]:
        command = (sys.executable, "-m", "loopline.bench.proofs.waits.worker")
        return start_worker(self._settings[number], self._folder, command)


async def play(
    server: RedisProcess,
    clock: ShiftedClock,
    folder: Path,
    options: WaitsOptions,
    say: Callable[[str], None] = lambda text: None,
) -> Played:
    """Admit, kill, let time pass, wake, count. `server` runs with `clock`. Raises `BenchError` for
    a deployment that does not finish in time."""
    register()
    settings = BusSettings(
        redis_url=server.url, prefix="waits", lease_seconds=1, sweep_seconds=0.1,
        block_seconds=0.2, retry_base_seconds=0.05, max_attempts=100, shards=2,
        max_runs=max(1, options.runs),
    )  # fmt: skip
    rng = random.Random(options.seed)
    crew = _Crew(settings, folder)
    crew.start()
    try:
        async with Client.connect(settings) as client:
            played = Played(await _begin(client, options, rng))
            killing = asyncio.create_task(_kill_now_and_then(crew, options.kills, rng))
            await _until(lambda: _all_wait(client.bus, options.runs), "not all runs wait")
            await killing
            await _until(lambda: _all_wait(client.bus, options.runs), "not all runs wait")
            played.bytes_per_wait = await _bytes_per_wait(client.bus, played)
            played.active_while_waiting = len(await client.bus.active_runs())
        say(f"all wait; every process and Redis die, and {DAYS} days pass…")
        crew.kill_all()
        server.kill()
        clock.jump(DAYS * DAY)
        with clock.lying():
            server.start()
        crew.start()
        killing = asyncio.create_task(_kill_now_and_then(crew, options.kills, rng, server, clock))
        async with Client.connect(settings) as client:
            await asyncio.gather(*(_send_all(settings, played) for _ in range(SENDERS)))
            await killing
            await _until(lambda: _all_ended(client, played), "not all runs have continued")
            await _count(client, played)
    finally:
        crew.kill_all()
    played.kills = crew.kills
    return played


async def _begin(client: Client, options: WaitsOptions, rng: random.Random) -> dict[str, str]:
    kinds: dict[str, str] = {}
    for number in range(options.runs):
        kind = KINDS[number % len(KINDS)]
        seconds = rng.uniform(DAY, (DAYS - 1) * DAY) if kind == "expiry" else 30 * DAY
        run = client.new_run(
            "Wait.",
            workflow="waiting",
            options={"kind": kind, "seconds": seconds},
            budget=Budget(seconds=3_600),
        )
        early = kind == "early signal"
        await client.submit(run, delay=2 * DAY if early else 0.0)
        if early:
            await client.signal(run.id, SIGNAL, signal_id="once")
        kinds[run.id] = kind
    return kinds


async def _kill_now_and_then(
    crew: _Crew,
    kills: int,
    rng: random.Random,
    server: RedisProcess | None = None,
    clock: ShiftedClock | None = None,
) -> None:
    """Kill workers and, halfway through, the server."""
    for number in range(kills):
        await asyncio.sleep(rng.uniform(0.2, 0.8))
        await asyncio.to_thread(crew.kill_one, rng)
        if server is not None and clock is not None and number == kills // 2:
            await asyncio.to_thread(server.kill)
            with clock.lying():
                await asyncio.to_thread(server.start)


async def _send_all(settings: BusSettings, played: Played) -> None:
    """Act as one of the senders: send every signal with its id and every approval, until all are
    accepted."""
    async with Client.connect(settings) as client:
        for run_id, kind in played.kinds.items():
            if kind.endswith("signal"):
                await _retry(lambda: client.signal(run_id, SIGNAL, signal_id="once"))  # noqa: B023
        while approvals := await _retry(client.approvals):
            for approval in approvals:
                with suppress(ApprovalConflict, ApprovalUnknown):
                    await _retry(
                        lambda: client.decide(approval, "approved", by="proof")  # noqa: B023
                    )


async def _retry(call: Callable[[], Awaitable[T]]) -> T:
    """Retry a call if Redis was down for too long: a repeated call counts once. Raises the last
    failure after LONGEST_SECONDS."""
    end = time.monotonic() + LONGEST_SECONDS
    while True:
        try:
            return await call()
        except (BusUnavailable, RedisError, OSError):
            if time.monotonic() > end:
                raise
        await asyncio.sleep(0.1)


async def _all_wait(bus: Bus, runs: int) -> bool:
    with suppress(RedisError, OSError):
        return await waits.count_waits(bus) == runs
    return False


async def _all_ended(client: Client, played: Played) -> bool:
    with suppress(RedisError, OSError):
        return await waits.count_waits(client.bus) == 0 and not await client.bus.active_runs()
    return False


async def _until(holds: Callable[[], Awaitable[bool]], failure: str) -> None:
    async with time_limit(LONGEST_SECONDS, failure):
        while not await holds():  # noqa: ASYNC110 - the bus tells nobody
            await asyncio.sleep(0.1)


async def _bytes_per_wait(bus: Bus, played: Played) -> int:
    """The most memory of a wait in a sample: its part of the run's hash and of the timers."""
    most = 0
    # An odd step: a sample of every kind.
    for run_id in list(played.kinds)[:: len(played.kinds) // _SAMPLE | 1]:
        shard = bus.keys.shard_of(run_id)
        key, copy = shard.run(run_id), shard.run("copy-of-a-run")
        fields: dict[bytes, bytes] = await bus.redis.hgetall(key)  # pyright: ignore
        rest = {
            name: value
            for name, value in fields.items()
            if not name.startswith((b"wait", b"left", b"sent:", b"signals"))
        }
        sizes: list[int] = []
        for content in (fields, rest):
            await bus.redis.hset(copy, mapping=content)  # pyright: ignore
            sizes.append(await bus.redis.memory_usage(copy, samples=0) or 0)  # pyright: ignore
            await bus.redis.delete(copy)
        buffered = await bus.redis.memory_usage(shard.signals(run_id), samples=0) or 0  # pyright: ignore
        timers = await bus.redis.memory_usage(shard.waits, samples=0) or 0  # pyright: ignore
        share = timers / max(1, await bus.redis.zcard(shard.waits))
        most = max(most, round(sizes[0] - sizes[1] + buffered + share))
    return most


async def _count(client: Client, played: Played) -> None:
    for run_id in played.kinds:
        state = await client.bus.run_state(run_id)
        if state.state == "ended":
            played.ended[run_id] = (state.answer, len(steps_of(state)))
    for shard in client.bus.keys.all_shards():
        for _, fields in await client.bus.redis.xrange(shard.trajectories):
            played.trajectories[fields[b"run_id"].decode()] += 1


def run(options: WaitsOptions, progress: Progress) -> Outcome:
    """Run once, and compare the journals with the waits."""
    if not can_shift_clocks():
        raise BenchError("Redis' clock can't be moved here: this needs Linux and a C compiler (cc)")
    with tempfile.TemporaryDirectory(prefix="bench-waits-") as scratch:
        folder = Path(scratch)
        clock = shifted_clock(folder)
        server = RedisProcess(folder / "redis", persistence="everysec", listen="tcp")
        try:
            with clock.lying():
                server.start()
            played = asyncio.run(play(server, clock, folder, options, progress.say))
        except UserError as error:
            raise BenchError(str(error)) from error
        finally:
            server.kill()
    return _outcome(options, played)


def _outcome(options: WaitsOptions, played: Played) -> Outcome:
    outcome = Outcome(
        about=(
            f"{options.runs:,} runs wait, {WORKERS} workers, {DAYS} days; {played.kills} kills of"
            f" workers and two of Redis; seed {options.seed}"
        ),
        measurements=[
            measured("lost", len(played.lost), better="lower", bar=0),
            measured("repeated", len(played.repeated), better="lower", bar=0),
            measured(
                "bytes_per_wait", played.bytes_per_wait, unit="bytes", better="lower",
                bar=LEAST_BYTES_BAR,
            ),
        ],
        facts={"runs": dict(Counter(played.kinds.values()))},
    )  # fmt: skip
    violations = [
        Violation("each run goes on once", json.dumps([run_id, played.kinds[run_id],
                                                       played.ended.get(run_id)]))
        for run_id in {*played.lost, *played.repeated}
    ]  # fmt: skip
    if played.active_while_waiting:
        why = f"{played.active_while_waiting} runs were in flight while all waited"
        violations.append(Violation("a run that waits is not in flight", why))
    outcome.violate(violations)
    return outcome


PROOF = Proof(
    name="waits",
    title="runs that wait for days, while every process and Redis die",
    options=WaitsOptions,
    minutes=lambda options: 0.4 + options.runs / 2_500,
    run=run,
)
