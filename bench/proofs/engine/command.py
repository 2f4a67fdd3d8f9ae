"""`bench engine`: what is measured, in which order."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import typer
from rich.console import Console

from loopline.bench.errors import UsageError
from loopline.bench.proofs.engine import batched, page, report
from loopline.bench.proofs.engine.figures import (
    CONTINUOUS,
    GENERATE,
    OURS_LLAMA,
    OURS_TORCH,
    SERVER,
    Figures,
    Report,
)
from loopline.bench.proofs.engine.models import Weights, prepare, require
from loopline.bench.proofs.engine.workload import Measured, Peer, asks
from loopline.bench.proofs.isolated_process import alone_in_a_process
from loopline.workers.installation import how_to_install


@dataclass(frozen=True)
class Plan:
    """What to measure; the fields are the command's options."""

    model: str
    precision: str
    only: str
    concurrency: str
    repeats: int
    threads: int
    batched_bench: Path | None
    output: Path

    def places(self) -> list[int]:
        """The numbers of requests in flight. Raises `UsageError`."""
        try:
            found = sorted({int(each) for each in self.concurrency.split(",")})
        except ValueError:
            found = []
        if not found or found[0] < 1 or found[-1] > 200:
            raise UsageError(
                f"--concurrency {self.concurrency!r}: numbers from 1 to 200, comma-separated"
            )
        return found


def measure(plan: Plan, *, as_json: bool) -> None:
    """Measure, print, write the page. Raises `BenchError`."""
    if plan.only not in ("both", "llama_cpp", "torch"):
        raise UsageError(f"--only {plan.only!r}: choose one of both, llama_cpp, torch")
    if plan.only != "torch" and find_spec("llama_cpp") is None:
        raise UsageError(
            f"llama-cpp-python is not installed; {how_to_install('gguf')}; or --only torch"
        )
    places = plan.places()
    require(plan.model, plan.precision)
    with (
        tempfile.TemporaryDirectory(prefix="bench-engine-") as scratch,
        # What one leaves behind costs the next up to a third of its speed.
        alone_in_a_process() as alone,
    ):
        with_gguf = plan.only != "torch"
        making = alone.submit(
            prepare, plan.model, plan.precision, Path(scratch), with_gguf=with_gguf
        )
        found = _measure(plan, places, making.result(), alone, Console(stderr=True))
    console = Console()
    report.show(found, console)
    page.write(found, plan.output)
    console.print(f"page: {plan.output}")
    if as_json:
        typer.echo(json.dumps(found.as_json()))


def _measure(
    plan: Plan, places: list[int], weights: Weights, alone: Executor, progress: Console
) -> Report:
    machine = f"{os.cpu_count()} cores, {plan.threads} threads for each engine"
    found = Report(weights.name, plan.precision, machine, {}, {})
    for count in places:
        peers = _peers(plan, weights, count)
        for repeat in range(plan.repeats):
            for name, make in peers.items():
                progress.print(f"{count} in flight, repeat {repeat + 1} of {plan.repeats}: {name}…")
                about, measured = alone.submit(_run, make, count, repeat).result()
                found.about[name] = about
                found.figures.setdefault(count, {}).setdefault(name, Figures()).add(measured)
    if plan.batched_bench is not None and weights.gguf is not None:
        for repeat in range(plan.repeats):
            progress.print(f"llama-batched-bench, repeat {repeat + 1} of {plan.repeats}…")
            theirs = batched.theirs(plan.batched_bench, weights.gguf, threads=plan.threads)
            mine = alone.submit(batched.ours, weights.gguf, threads=plan.threads).result()
            found.batched.append((theirs, mine))
    return found


def _run(make: Callable[[], Peer], count: int, repeat: int) -> tuple[str, Measured]:
    """Start one peer, warm it up, let it answer; what it is and how it did."""

    async def run() -> tuple[str, Measured]:
        peer = make()
        await peer.start()
        try:
            await peer.run(asks(1, seed=-1), 1)
            return peer.about, await peer.run(asks(count, seed=repeat), count)
        finally:
            await peer.close()

    return asyncio.run(run())


def _peers(plan: Plan, weights: Weights, places: int) -> dict[str, Callable[[], Peer]]:
    """What makes each peer, by its name."""
    from loopline.bench.proofs.engine.ours import OurEngine

    peers: dict[str, Callable[[], Peer]] = {}
    if weights.gguf is not None:
        from loopline.bench.proofs.engine.packaged_server import PackagedServer

        peers[OURS_LLAMA] = partial(
            OurEngine, "llama_cpp", str(weights.gguf), threads=plan.threads, places=places
        )
        peers[SERVER] = partial(PackagedServer, weights.gguf, context=1024, threads=plan.threads)
    if plan.only != "llama_cpp":
        from loopline.bench.proofs.engine.transformers_peers import ContinuousBatch, StaticBatch

        peers[OURS_TORCH] = partial(
            OurEngine, "torch", str(weights.folder), threads=plan.threads, places=places
        )
        peers[GENERATE] = partial(StaticBatch, weights.folder, threads=plan.threads)
        peers[CONTINUOUS] = partial(
            ContinuousBatch, weights.folder, threads=plan.threads, places=places
        )
    return peers
