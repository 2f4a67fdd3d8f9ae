"""Eight workers call one endpoint, which refuses every call beyond its limit."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from loopline.agents.errors import RequestFailed
from loopline.agents.records import Budget, Message
from loopline.bus import Bus, BusSettings, Inbox, RunEnded
from loopline.runtime.client.client import Client
from loopline.testing import running_workers
from loopline.workers.engines.settings import ModelSettings
from loopline.workers.host import BusHost
from loopline.workers.messages import registry
from loopline.workers.scripted_api import ScriptedServer, ServerOptions
from loopline.workers.settings import GpuWorkerSettings

WORKERS = 8
POOL = "llm"


@dataclass(frozen=True)
class RateResult:
    """Counts of the endpoint during the measurement."""

    answers: int
    refused: int
    allowed: float
    """Calls that its limit allows in this time."""


async def play(
    settings: BusSettings,
    folder: Path,
    *,
    per_minute: int,
    seconds: float,
    say: Callable[[str], None],
) -> RateResult:
    """Offer more calls than the limit allows, for this many seconds."""
    async with ScriptedServer(ServerOptions(requests_per_minute=per_minute)) as server:
        model = ModelSettings.model_validate(
            {
                "engine": "openai", "model": "m", "base_url": server.url,
                "requests_per_minute": per_minute, "max_tokens": 16,
            }
        )  # fmt: skip
        workers = [
            GpuWorkerSettings(bus=settings, name=f"gpu{number}", models={POOL: model})
            for number in range(WORKERS)
        ]
        async with running_workers(workers, folder):
            say(f"{WORKERS} workers call for {seconds:.0f} s…")
            began = time.monotonic()
            await _ask(settings, seconds, calls=int(per_minute * seconds / 60) + 4 * WORKERS)
            took = time.monotonic() - began
            counts = server.served.as_json(listed=False)
    answers, faults = counts["calls"], counts["faults"]
    assert isinstance(answers, int)
    assert isinstance(faults, dict)
    refused = int(faults.get("rate_limited", 0))  # pyright: ignore
    return RateResult(answers, refused, took * per_minute / 60)


async def _ask(settings: BusSettings, seconds: float, *, calls: int) -> None:
    """Send all calls at once, and return when the time is over."""
    async with (
        Client.connect(settings) as client,
        Bus(settings, registry()) as bus,
        Inbox(bus) as inbox,
    ):
        run = client.new_run(
            "Ask.", workflow="solo", policies={"solo": POOL}, budget=Budget(seconds=seconds + 300)
        )
        await client.submit(run)

        async def call(number: int) -> None:
            host = BusHost(inbox, run, "solo", 0, number)
            try:
                await host.complete([Message(role="user", content=f"What is {number} + 1?")])
            except (RequestFailed, RunEnded):
                return

        asking = [asyncio.create_task(call(number)) for number in range(calls)]
        await asyncio.sleep(seconds)
        await bus.cancel(run.id)
        await asyncio.gather(*asking)
