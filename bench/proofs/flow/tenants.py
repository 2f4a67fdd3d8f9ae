"""A tenant with a few runs, alone and next to one with thousands of waiting runs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from loopline.agents.records import Budget, JsonObject
from loopline.bus import BusSettings
from loopline.runtime.client.client import Client
from loopline.testing import running_workers
from loopline.workers.admission import TENANT_TAG
from loopline.workers.engines.settings import ModelSettings
from loopline.workers.settings import GpuWorkerSettings, RecorderSettings, RoleWorkerSettings

WORKING = 16
"""Most runs that are active at the same time."""
LATENCY = 0.5
"""Seconds that a call takes."""
ALONE: JsonObject = {"calculator": False}
"""Options with which each run is a single call."""
FEW_AT_ONCE = 2
"""Runs of the small tenant at the same time."""


@dataclass(frozen=True)
class TenantResult:
    """Seconds of the small tenant's runs."""

    alone: list[float]
    together: list[float]
    waiting: int
    """Runs of the large tenant that were still waiting at the end."""

    @property
    def p99_ratio(self) -> float:
        return percentile(self.together, 0.99) / percentile(self.alone, 0.99)


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


async def play(
    settings: BusSettings, folder: Path, *, runs: int, samples: int, say: Callable[[str], None]
) -> TenantResult:
    """Measure the small tenant alone, then next to `runs` of the large one."""
    model = ModelSettings.model_validate(
        {"engine": "scripted", "model": "m", "scripted": {"latency_seconds": LATENCY}}
    )
    bus = settings.model_copy(update={"max_working": WORKING})
    workers = [
        GpuWorkerSettings(bus=bus, name="gpu", models={"llm": model}),
        RoleWorkerSettings(bus=bus, name="role", roles=("solo",)),
        RecorderSettings(bus=bus, name="recorder", store=folder / "store"),
    ]
    async with running_workers(workers, folder), Client.connect(bus) as client:
        await _measure(client, samples // 4)  # first-time work is done
        say("the small tenant is measured alone…")
        alone = await _measure(client, samples)
        say(f"{runs:,} runs of the large one are admitted…")
        large = await _admit_many(client, runs)
        say("the small tenant is measured next to them…")
        together = await _measure(client, samples)
        waiting = 0
        for run_id in large[-100:]:
            waiting += await client.bus.is_active(run_id)
    return TenantResult(alone, together, waiting)


async def _measure(client: Client, samples: int) -> list[float]:
    took: list[float] = []
    numbers = iter(range(samples))

    async def ask() -> None:
        for number in numbers:
            run = client.new_run(
                f"What is {number} + 2?", workflow="solo", policies={"solo": "llm"}, options=ALONE,
                tags={TENANT_TAG: "small"},
            )  # fmt: skip
            expected = client.expect(run)
            began = time.monotonic()
            await client.submit(run)
            await client.wait(run.id, expected)
            took.append(time.monotonic() - began)

    await asyncio.gather(*(ask() for _ in range(FEW_AT_ONCE)))
    return took


async def _admit_many(client: Client, runs: int) -> list[str]:
    ids: list[str] = []
    numbers = iter(range(runs))

    async def admit() -> None:
        for number in numbers:
            run = client.new_run(
                f"What is {number} + 3?", workflow="solo", policies={"solo": "llm"}, options=ALONE,
                tags={TENANT_TAG: "large"}, budget=Budget(seconds=7_200),
            )  # fmt: skip
            await client.submit(run)
            ids.append(run.id)

    await asyncio.gather(*(admit() for _ in range(16)))
    return ids
