"""`python -m loopline.bench.proofs.bus.child JOB`: one producer or consumer of a measurement.

It prints `ready` on standard output when it can start, starts when it reads a line on standard
input, and ends with one line of JSON: its results, by its own clock. So imports and connections are
never part of a measurement. Every peer runs like our own worker processes: with uvloop, and a
garbage collector that runs rarely.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from typing import Literal

import psutil
import uvloop
from pydantic import BaseModel

from loopline.bench.proofs.bus.peers import producer_of, receiver_of, stamp
from loopline.bench.proofs.isolated_process import redirect_logs
from loopline.workers.gc_tuning import collect_rarely


class Job(BaseModel):
    """Work for one process."""

    peer: str
    role: Literal["produce", "consume"]
    url: str
    messages: int
    rate: float = 0.0
    """Messages per second; 0 means as fast as possible."""
    latencies: bool = False
    """Whether to report each message's latency."""


class Result(BaseModel):
    """Result of one process; times are nanoseconds of `stamp`."""

    began: int
    ended: int
    cpu_seconds: float
    rss_bytes: int
    latencies: list[int] = []
    """Nanoseconds from publication to the handler's start, one per message."""

    @property
    def seconds(self) -> float:
        return (self.ended - self.began) / 1e9


async def run(job: Job) -> Result:
    """Do the job between `ready` and the end."""
    process = psutil.Process()
    latencies: list[int] = []
    if job.role == "produce":
        producer = producer_of(job.peer)
        await producer.open(job.url)
        cpu, began = await _wait_for_start()
        if job.rate:
            await _send_at_rate(job, producer.send_one)
        else:
            await producer.send_many(job.messages)
        ended = stamp()
        used = _cpu() - cpu
        await producer.close()
    else:
        receiver = receiver_of(job.peer)
        await receiver.open(job.url)

        def on_message(sent: int) -> None:
            latencies.append(stamp() - sent)

        cpu, began = await _wait_for_start()
        await receiver.consume(job.messages, on_message)
        ended = stamp()
        used = _cpu() - cpu
        await receiver.close()
    return Result(
        began=began,
        ended=ended,
        cpu_seconds=used,
        rss_bytes=process.memory_info().rss,
        latencies=latencies if job.latencies else [],
    )


async def _wait_for_start() -> tuple[float, int]:
    print("ready", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    return _cpu(), stamp()


def _cpu() -> float:
    times = os.times()
    return times.user + times.system


async def _send_at_rate(job: Job, send_one: Callable[[], Awaitable[None]]) -> None:
    """Send in an open loop: each message is sent at its planned time, however late the previous one
    was."""
    loop = asyncio.get_running_loop()
    start = loop.time() + 0.05
    for index in range(job.messages):
        wait = start + index / job.rate - loop.time()
        if wait > 0:
            await asyncio.sleep(wait)
        await send_one()


def main() -> None:
    redirect_logs()
    collect_rarely()
    job = Job.model_validate_json(sys.argv[1])
    print(uvloop.run(run(job)).model_dump_json(), flush=True)


if __name__ == "__main__":
    main()
