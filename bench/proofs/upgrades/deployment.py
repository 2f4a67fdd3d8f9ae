"""A deployment whose workers run one version, then another."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from loopline.bench.errors import BenchError
from loopline.bench.proofs.upgrades.other_version import Version
from loopline.bench.proofs.upgrades.side import Job
from loopline.bus import Bus, BusSettings
from loopline.testing import end_workers, start_worker, wait_until_ready
from loopline.workers.engines.settings import ModelSettings
from loopline.workers.settings import (
    GpuWorkerSettings,
    RecorderSettings,
    RoleWorkerSettings,
    ToolWorkerSettings,
    WorkerBase,
)

ROLES = ("planner", "slm", "expert")
LATENCY_SECONDS = 0.4
"""Seconds of a model's answer: runs last long enough to be in flight while workers change."""
CONCURRENCY = 8
SIDE_SECONDS = 300.0
LOOK_SECONDS = 0.05


@dataclass
class Fleet:
    """The workers of one bus."""

    bus: BusSettings
    folder: Path
    running: list[tuple[WorkerBase, subprocess.Popen[bytes]]] = field(default_factory=list)  # pyright: ignore
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    @property
    def store(self) -> Path:
        return self.folder / "store"

    def settings(self) -> list[WorkerBase]:
        """Settings of one worker of each kind, in the order in which the workers are stopped."""
        number = next(self._numbers)
        scripted = {"latency_seconds": LATENCY_SECONDS}
        models = {
            name: ModelSettings.model_validate(
                {"engine": "scripted", "model": f"scripted-{name}", "scripted": scripted}
            )
            for name in ("llm", "slm")
        }
        return [
            RoleWorkerSettings(
                bus=self.bus, name=f"roles-{number}", roles=ROLES, concurrency=CONCURRENCY
            ),
            ToolWorkerSettings(bus=self.bus, name=f"tool-{number}"),
            GpuWorkerSettings(bus=self.bus, name=f"gpu-{number}", models=models),
            RecorderSettings(
                bus=self.bus, name=f"recorder-{number}", store=self.store, linger_seconds=0.2
            ),
        ]

    async def start(self, version: Version, settings: Sequence[WorkerBase]) -> None:
        """Start workers of a version, and wait until they are ready. Raises `UserError` if one is
        not."""
        command = version.command("loopline.workers")
        added = [(item, start_worker(item, self.folder, command)) for item in settings]
        self.running += added
        await wait_until_ready(settings, [process for _, process in added], self.folder)

    async def stop(self, count: int | None = None) -> None:
        """Stop the oldest workers, or all; roles first, because their steps need the other
        workers."""
        leaving, self.running = self.running[:count], self.running[len(self.running[:count]) :]
        for _, process in leaving:
            await asyncio.to_thread(end_workers, [process])


async def run_side(version: Version, job: Job, state: Path) -> tuple[dict[str, str], list[str]]:
    """Run a program of that version; return what it admitted, and its problems. Raises
    `BenchError`."""
    process = await asyncio.create_subprocess_exec(
        *version.command("loopline.bench.proofs.upgrades.side"), job.model_dump_json(),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, "LOOPLINE_STATE": str(state)},
    )  # fmt: skip
    try:
        out, err = await asyncio.wait_for(process.communicate(), SIDE_SECONDS)
    except TimeoutError:
        process.kill()
        raise BenchError(f"the side of {version.name} took more than {SIDE_SECONDS:g} s") from None
    if process.returncode != 0:
        raise BenchError(f"the side of {version.name} failed: {err.decode()[-2000:]}")
    report = json.loads(out.splitlines()[-1])
    return report["admitted"], report["troubles"]


async def wait_until_recorded(bus: BusSettings) -> None:
    """Wait until the recorder has acknowledged all ended runs. Raises `BenchError`."""
    async with Bus(bus) as looking:
        for _ in range(int(SIDE_SECONDS / LOOK_SECONDS)):
            shards = looking.keys.all_shards()
            if not any([await looking.redis.xlen(shard.trajectories) for shard in shards]):
                return
            await asyncio.sleep(LOOK_SECONDS)
    raise BenchError(f"after {SIDE_SECONDS:g} s there are runs that are not recorded")


async def wait_until_under_way(bus: BusSettings, runs: Sequence[str]) -> int:
    """Wait until a third of the runs have a step or have ended; return the number still in
    flight."""
    async with Bus(bus) as looking:
        while True:
            states = [await looking.run_state(run_id) for run_id in runs]
            begun = sum(bool(state.steps) for state in states)
            if begun * 3 >= len(runs):
                return sum(state.active for state in states)
            await asyncio.sleep(LOOK_SECONDS)
