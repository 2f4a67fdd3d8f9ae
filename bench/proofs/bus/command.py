"""`bench bus`: what is measured, in which order, and the verdict."""

from __future__ import annotations

import asyncio
import contextlib
import json
import tempfile
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

import typer
from rich.console import Console

from loopline.bench.errors import UsageError
from loopline.bench.proofs.bus import idle, processes, report
from loopline.bench.proofs.bus.figures import Comparison, Peer, Report
from loopline.bench.proofs.bus.peers import PEERS
from loopline.bench.proofs.bus.recovery import recovery
from loopline.runtime.errors import EXIT_FAILED
from loopline.testing import Persistence, RedisProcess, running_redis
from loopline.workers.installation import require

RATE = 200.0
"""Messages per second of the latency measurement."""
_SERVERS: dict[str, tuple[Persistence, ...]] = {
    "none": ("none",),
    "everysec": ("everysec",),
    "always": ("always",),
    "both": ("none", "everysec"),
}


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure; the fields are the command's options."""

    messages: int
    repeats: int
    latency_seconds: float
    persistence: str
    idle_entries: int
    only_peers: bool


def measure(plan: Plan, *, as_json: bool) -> None:
    """Measure, print, and exit with 1 if a bar is missed. Raises `BenchError`."""
    if plan.persistence not in _SERVERS:
        raise UsageError(f"--persistence {plan.persistence!r}: choose one of {', '.join(_SERVERS)}")
    require("faststream")
    console = Console()
    found = asyncio.run(_measure(plan, Console(stderr=True)))
    report.show(found, console)
    if as_json:
        print(json.dumps(report.as_json(found)))
    if not all(met for _, _, met in found.bars().values()):
        raise typer.Exit(EXIT_FAILED)


async def _measure(plan: Plan, progress: Console) -> Report:
    found = Report([], idle_entries=plan.idle_entries)
    for persistence in _SERVERS[plan.persistence]:
        found.comparisons.append(await _compare(plan, persistence, progress))
    if plan.only_peers:
        return found
    with _server("none") as server:
        progress.print("recovery after SIGKILL…")
        found.recovery = await recovery(server)
        progress.print("idle worker…")
        found.idle = await idle.idle_worker(server)
        progress.print(f"sweeper over {plan.idle_entries:,} pending entries…")
        found.sweep = await idle.sweep(server, plan.idle_entries)
    return found


@contextlib.contextmanager
def _server(persistence: Persistence) -> Generator[RedisProcess]:
    with (
        tempfile.TemporaryDirectory(prefix="bench-bus-") as folder,
        running_redis(Path(folder), persistence=persistence, listen="tcp") as server,
    ):
        yield server


async def _compare(plan: Plan, persistence: Persistence, progress: Console) -> Comparison:
    """Repeats are interleaved: what else the machine does meets every peer alike."""
    with _server(persistence) as server:
        peers = {name: Peer() for name in PEERS}
        for repeat in range(plan.repeats):
            for name, peer in peers.items():
                progress.print(
                    f"appendonly {persistence}, repeat {repeat + 1} of {plan.repeats}: {name}…"
                )
                peer.throughput.append(await processes.throughput(server, name, plan.messages))
                peer.latencies.append(
                    await processes.latencies(server, name, RATE, plan.latency_seconds)
                )
        return Comparison(persistence, str(server.binary), peers)
