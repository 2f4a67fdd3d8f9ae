"""`bench engine`: what is measured, in which order."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import typer
from rich.console import Console

from bench.engine_bench import batched, page, report
from bench.engine_bench.figures import Figures, Report
from bench.engine_bench.models import Weights, prepare
from bench.engine_bench.workload import Peer, asks
from bench.errors import UsageError


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
            "llama-cpp-python is not installed: pip install 'switchyard[gguf]', or --only torch"
        )
    places = plan.places()
    with tempfile.TemporaryDirectory(prefix="bench-engine-") as scratch:
        weights = prepare(plan.model, plan.precision, Path(scratch), with_gguf=plan.only != "torch")
        found = asyncio.run(_measure(plan, places, weights, Console(stderr=True)))
    console = Console()
    report.show(found, console)
    page.write(found, plan.output)
    console.print(f"page: {plan.output}")
    if as_json:
        typer.echo(json.dumps(found.as_json()))


async def _measure(plan: Plan, places: list[int], weights: Weights, progress: Console) -> Report:
    machine = f"{os.cpu_count()} cores, {plan.threads} threads for each engine"
    found = Report(weights.name, plan.precision, machine, {}, {})
    for count in places:
        peers = _peers(plan, weights, count)
        for repeat in range(plan.repeats):
            for peer in peers:
                progress.print(
                    f"{count} in flight, repeat {repeat + 1} of {plan.repeats}: {peer.name}…"
                )
                # Started anew each time: nothing is left in a cache from an earlier repeat.
                await peer.start()
                try:
                    await peer.run(asks(1, seed=-1), 1)
                    measured = await peer.run(asks(count, seed=repeat), count)
                finally:
                    await peer.close()
                found.about[peer.name] = peer.about
                found.figures.setdefault(count, {}).setdefault(peer.name, Figures()).add(measured)
    if plan.batched_bench is not None and weights.gguf is not None:
        for repeat in range(plan.repeats):
            progress.print(f"llama-batched-bench, repeat {repeat + 1} of {plan.repeats}…")
            theirs = await batched.theirs(plan.batched_bench, weights.gguf, threads=plan.threads)
            mine = await batched.ours(weights.gguf, threads=plan.threads)
            found.batched.append((theirs, mine))
    return found


def _peers(plan: Plan, weights: Weights, places: int) -> list[Peer]:
    from bench.engine_bench.ours import OurEngine

    peers: list[Peer] = []
    if weights.gguf is not None:
        from bench.engine_bench.packaged_server import PackagedServer

        peers += [
            OurEngine("llama_cpp", str(weights.gguf), threads=plan.threads, places=places),
            PackagedServer(weights.gguf, context=1024, threads=plan.threads),
        ]
    if plan.only != "llama_cpp":
        from bench.engine_bench.transformers_peers import ContinuousBatch, StaticBatch

        peers += [
            OurEngine("torch", str(weights.folder), threads=plan.threads, places=places),
            StaticBatch(weights.folder, threads=plan.threads),
            ContinuousBatch(weights.folder, threads=plan.threads),
        ]
    return peers
