"""The cost of traces at a gateway: two deployments, one with traces, take the same calls at the
same time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from loopline.bench.proofs.gateway.load import at_rate
from loopline.bench.proofs.gateway.servers import Served
from loopline.bench.proofs.outcome import Measurement, measured
from loopline.bench.statistics import bootstrap_difference

MAX_TRACING_PERCENT = 3.0
WARM_UP_SECONDS = 2.0


class _Collector(BaseHTTPRequestHandler):
    """Accepts everything."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self.send_response(200)
        self.send_header("content-type", "application/x-protobuf")
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Log no requests."""


@contextmanager
def collector() -> Generator[str]:
    """Yield the base URL of a collector in this process."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Collector)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@dataclass
class Windows:
    """Seconds of processor time in each time window."""

    gateway: list[float] = field(default_factory=list[float])
    everything: list[float] = field(default_factory=list[float])
    """Gateway, gpu worker, recorder and Redis."""


async def side_by_side(
    plain: Served, traced: Served, rate: float, windows: int, seconds: float
) -> tuple[Windows, Windows]:
    """Send calls to both at this rate at the same time, in `windows` windows of `seconds` each. A
    process's later work for a call counts, too, and other load on the machine affects both alike.
    Raises `BenchError`."""
    servers = [(plain, Windows()), (traced, Windows())]
    calls = [
        asyncio.create_task(
            at_rate(server.target, rate, WARM_UP_SECONDS + windows * seconds, stream=False)
        )
        for server, _ in servers
    ]
    await asyncio.sleep(WARM_UP_SECONDS)
    for _ in range(windows):
        before = [(server.front_seconds, server.cpu_seconds) for server, _ in servers]
        await asyncio.sleep(seconds)
        for (server, figures), (gateway, everything) in zip(servers, before, strict=True):
            figures.gateway.append(server.front_seconds - gateway)
            figures.everything.append(server.cpu_seconds - everything)
    await asyncio.gather(*calls)
    for server, _ in servers:
        server.target.close()
    return servers[0][1], servers[1][1]


def tracing_measurements(plain: Windows, traced: Windows) -> list[Measurement]:
    """Return the processor time that traces add, with 95 % intervals over windows."""
    return [
        _added("tracing_percent", traced.gateway, plain.gateway, "% of the gateway's time", True),
        _added(
            "tracing_everywhere_percent", traced.everything, plain.everything,
            "% of the time of all processes", False,
        ),
    ]  # fmt: skip


def _added(
    name: str, traced: Sequence[float], plain: Sequence[float], unit: str, barred: bool
) -> Measurement:
    mean = sum(plain) / len(plain)
    return measured(
        name, bootstrap_difference(traced, plain), unit, scale=100 / mean,
        bar=MAX_TRACING_PERCENT if barred else None, better="lower", group="traces",
    )  # fmt: skip
