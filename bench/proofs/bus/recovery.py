"""Time that work waits after the worker that held it was killed.

`python -m loopline.bench.proofs.bus.recovery URL LEASE ROLE`: ROLE `hold` takes deliveries and
never finishes them; `take` reports when it gets one.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import sys
import uuid
from dataclasses import dataclass

import uvloop

from loopline.bench.errors import BenchError
from loopline.bench.proofs.bus.peers import STREAM, stamp
from loopline.bench.proofs.bus.peers.loopline import TYPE, Message, admission
from loopline.bench.proofs.isolated_process import redirect_logs
from loopline.bench.proofs.time_limit import time_limit
from loopline.bus import Bus, BusSettings, Consumer, Delivery, Registry, StepCommit
from loopline.testing import RedisProcess
from loopline.workers.isolated_python import OWN_PYTHON
from loopline.workers.process_lifetime import dies_with_parent

LEASE_SECONDS = 2.0
HELD = 32
ROUNDS = 5
TIMEOUT = 60.0


@dataclass(frozen=True, slots=True)
class Recovery:
    """Seconds from SIGKILL of the holder to the start of another worker's handler."""

    lease_seconds: float
    first: tuple[float, ...]
    """Seconds until the first delivery came back, by round."""
    last: tuple[float, ...]
    """Seconds until the last of the killed worker's deliveries came back, by round."""


async def measure_recovery(server: RedisProcess, rounds: int = ROUNDS) -> Recovery:
    """Kill a worker that holds leases, `rounds` times."""
    recoveries = [await _round(server) for _ in range(rounds)]
    server.flush()
    return Recovery(
        lease_seconds=LEASE_SECONDS,
        first=tuple(first for first, _ in recoveries),
        last=tuple(last for _, last in recoveries),
    )


async def _round(server: RedisProcess) -> tuple[float, float]:
    server.flush()
    async with contextlib.AsyncExitStack() as stack:
        holder = await stack.enter_async_context(_process(server.url, "hold"))
        async with Bus(_settings(server.url)) as bus:
            for _ in range(HELD):
                await bus.admit(admission(str(uuid.uuid4())))
        for _ in range(HELD):
            await _line(holder)
        taker = await stack.enter_async_context(_process(server.url, "take"))
        # Renewals happen every third of a lease: the kill may be anywhere between two of them.
        await asyncio.sleep(random.uniform(0.0, LEASE_SECONDS / 3))
        killed = stamp()
        holder.kill()
        times = [(int(await _line(taker)) - killed) / 1e9 for _ in range(HELD)]
        return min(times), max(times)


@contextlib.asynccontextmanager
async def _process(url: str, role: str):  # pyright: ignore
    process = await asyncio.create_subprocess_exec(
        *OWN_PYTHON, "-m", "loopline.bench.proofs.bus.recovery", url, role,
        stdout=asyncio.subprocess.PIPE,
        preexec_fn=dies_with_parent(signal.SIGKILL),
    )  # fmt: skip
    try:
        if await _line(process) != b"ready":
            raise BenchError(f"the worker that should {role} leases printed something else")
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _line(process: asyncio.subprocess.Process) -> bytes:
    assert process.stdout is not None
    async with time_limit(TIMEOUT, "a worker of the recovery measurement wrote no line"):
        line = await process.stdout.readline()
    if not line:
        raise BenchError("a worker of the recovery measurement died; its output is above")
    return line.strip()


def _settings(url: str) -> BusSettings:
    return BusSettings(redis_url=url, lease_seconds=LEASE_SECONDS)


async def _serve(url: str, role: str) -> None:
    registry = Registry()
    registry.register(TYPE, Message)

    async def handle(delivery: Delivery) -> None:
        print(stamp(), flush=True)
        if role == "hold":
            await asyncio.Event().wait()
        await delivery.commit(StepCommit(b"{}"))

    async with Bus(_settings(url), registry) as bus:
        consumer = Consumer(bus, [STREAM], handle, concurrency=2 * HELD)
        await consumer.ensure_groups(bus.keys.shard(0))
        print("ready", flush=True)
        await consumer.run()


def main() -> None:
    redirect_logs()
    _, url, role = sys.argv
    uvloop.run(_serve(url, role))


if __name__ == "__main__":
    main()
