"""Starting the measured processes, and the three measurements of one peer."""

from __future__ import annotations

import asyncio
import signal
from dataclasses import dataclass

from loopline.bench.errors import BenchError
from loopline.bench.proofs.bus.child import Job, Result
from loopline.testing import RedisProcess
from loopline.workers.isolated_python import OWN_PYTHON
from loopline.workers.process_lifetime import dies_with_parent

TIMEOUT = 600.0


class Child:
    """One process of a measurement; see `child`."""

    def __init__(self, job: Job) -> None:
        self.job = job

    async def start(self) -> None:
        """Return when the process is ready to start."""
        self._process = await asyncio.create_subprocess_exec(
            *OWN_PYTHON, "-m", "loopline.bench.proofs.bus.child", self.job.model_dump_json(),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=64 * 1_048_576,
            preexec_fn=dies_with_parent(signal.SIGKILL),
        )  # fmt: skip
        if await self._line() != b"ready\n":
            raise self._exit_error()

    def go(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(b"go\n")

    async def result(self) -> Result:
        line = await self._line()
        await self._process.wait()
        if not line.startswith(b"{"):
            raise self._exit_error()
        return Result.model_validate_json(line)

    async def _line(self) -> bytes:
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(TIMEOUT):
                return await self._process.stdout.readline()
        except TimeoutError:
            self._process.kill()
            raise self._exit_error() from None

    def _exit_error(self) -> BenchError:
        return BenchError(
            f"the {self.job.peer} process that should {self.job.role} {self.job.messages:,} "
            f"messages died or made no progress within {TIMEOUT:g} s; its output is above"
        )


@dataclass(frozen=True, slots=True)
class Throughput:
    """Figures of one repeat of one peer."""

    enqueue_per_second: float
    drain_per_second: float
    end_to_end_per_second: float
    producer_cpu_per_1000: float
    """CPU seconds of the producer process per 1,000 messages, while it enqueues."""
    consumer_cpu_per_1000: float
    """The same for the consumer process while it drains."""
    server_cpu_per_1000: float
    """The same for Redis while the stream is drained."""
    consumer_rss_mb: float


async def throughput(server: RedisProcess, peer: str, messages: int) -> Throughput:
    """Measure first enqueuing, then draining, then both at the same time on an empty server."""
    server.flush()
    sent = await _run_alone(Job(peer=peer, role="produce", url=server.url, messages=messages))
    before = server.cpu_seconds()
    drained = await _run_alone(Job(peer=peer, role="consume", url=server.url, messages=messages))
    server_cpu = server.cpu_seconds() - before
    server.flush()
    producer, consumer = await _run_together(server.url, peer, messages)
    server.flush()
    return Throughput(
        enqueue_per_second=messages / sent.seconds,
        drain_per_second=messages / drained.seconds,
        end_to_end_per_second=messages / ((consumer.ended - producer.began) / 1e9),
        producer_cpu_per_1000=1000 * sent.cpu_seconds / messages,
        consumer_cpu_per_1000=1000 * drained.cpu_seconds / messages,
        server_cpu_per_1000=1000 * server_cpu / messages,
        consumer_rss_mb=drained.rss_bytes / 1e6,
    )


async def latencies(server: RedisProcess, peer: str, rate: float, seconds: float) -> list[float]:
    """Return milliseconds from publication to the handler's start, at a steady rate."""
    server.flush()
    _, consumer = await _run_together(server.url, peer, int(rate * seconds), rate)
    server.flush()
    return [latency / 1e6 for latency in consumer.latencies]


async def _run_alone(job: Job) -> Result:
    child = Child(job)
    await child.start()
    child.go()
    return await child.result()


async def _run_together(
    url: str, peer: str, messages: int, rate: float = 0.0
) -> tuple[Result, Result]:
    consumer = Child(Job(peer=peer, role="consume", url=url, messages=messages, latencies=rate > 0))
    producer = Child(Job(peer=peer, role="produce", url=url, messages=messages, rate=rate))
    await consumer.start()
    await producer.start()
    consumer.go()
    producer.go()
    sent, consumption = await asyncio.gather(producer.result(), consumer.result())
    return sent, consumption
