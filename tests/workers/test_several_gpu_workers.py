"""Several gpu workers side by side: a request goes to any worker with a free place, and to the
requested model."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from loopline.agents.records import Call
from loopline.bus import Bus, BusSettings, Inbox
from loopline.bus.keys import GROUP
from loopline.testing import RedisProcess
from loopline.workers.engines.settings import ModelSettings
from loopline.workers.messages import inference_stream, registry
from loopline.workers.settings import GpuWorkerSettings
from tests.bus.serving import pending, until
from tests.conftest import quick_settings
from tests.workers.processes import scripted_models, workers_running
from tests.workers.streaming import ask_streaming

WITHIN = 60.0
PLACES = 3


@asynccontextmanager
async def bus_and_inbox(settings: BusSettings) -> AsyncGenerator[tuple[Bus, Inbox]]:
    async with Bus(settings, registry()) as bus, Inbox(bus) as inbox:
        yield bus, inbox


async def held_by(bus: Bus, pool: str) -> dict[str, int]:
    """Return the number of leased requests of a pool by worker."""
    key = bus.keys.shard(0).work(inference_stream(pool))
    groups = [info["name"] for info in await bus.redis.xinfo_groups(key)]
    # A ready worker creates the group with its first read.
    consumers = await bus.redis.xinfo_consumers(key, GROUP) if GROUP.encode() in groups else []
    pending_by_name = {
        info["name"].decode().rpartition("-")[0]: info["pending"] for info in consumers
    }
    return {name: count for name, count in pending_by_name.items() if count}


async def ready(folder: Path, *names: str) -> None:
    for name in names:
        log = folder / f"{name}.log"
        await until(lambda log=log: " ready " in log.read_text(), f"worker {name}", WITHIN)


async def test_an_idle_worker_answers_requests_beyond_a_full_one_s_places(
    any_server: RedisProcess, tmp_path: Path
) -> None:
    settings = quick_settings(any_server.url, lease_seconds=30)
    slow = scripted_models(max_concurrency=PLACES, scripted={"latency_seconds": 100})
    quick = scripted_models(max_concurrency=PLACES)
    full = GpuWorkerSettings(bus=settings, name="full", models={"slm": slow["slm"]})
    idle = GpuWorkerSettings(bus=settings, name="idle", models={"slm": quick["slm"]})
    async with bus_and_inbox(settings) as (bus, inbox):
        requests = [await ask_streaming(bus, inbox, "slm", seed) for seed in range(4 * PLACES)]
        async with workers_running([full], tmp_path) as processes:
            await ready(tmp_path, "full")

            async def is_full() -> bool:
                return await held_by(bus, "slm") == {"full": PLACES}

            await until(is_full, "worker whose places are taken", WITHIN)
            async with workers_running([idle], tmp_path):

                async def only_the_full_ones_are_left() -> bool:
                    answer_count = sum(request.reply.done() for request in requests)
                    return answer_count == len(requests) - PLACES

                await until(only_the_full_ones_are_left, "answers to all others", WITHIN)
                assert await held_by(bus, "slm") == {"full": PLACES}
                assert await pending(bus, inference_stream("slm")) == PLACES
            processes["full"].send_signal(signal.SIGKILL)
        for request in requests:
            request.reply.cancel()
            await bus.end_run(request.run_id, "cancelled", "by the test")
        await asyncio.gather(
            *(request.reply for request in requests), *(request.reading for request in requests),
            return_exceptions=True,
        )  # fmt: skip


async def test_each_request_reaches_the_model_of_its_pool(
    any_server: RedisProcess, tmp_path: Path
) -> None:
    """One worker serves both pools, another one only one of them."""
    settings = quick_settings(any_server.url, lease_seconds=30)
    models: dict[str, ModelSettings] = scripted_models(
        max_concurrency=1, scripted={"latency_seconds": 0.02}
    )
    both = GpuWorkerSettings(bus=settings, name="both", models=models)
    slm_worker = GpuWorkerSettings(bus=settings, name="one", models={"slm": models["slm"]})
    async with (
        bus_and_inbox(settings) as (bus, inbox),
        workers_running([both, slm_worker], tmp_path),
    ):
        pools = ["llm", "slm", "slm"] * 8
        await ready(tmp_path, "both", "one")
        requests = [await ask_streaming(bus, inbox, pool, n) for n, pool in enumerate(pools)]
        async with asyncio.timeout(WITHIN):
            calls: list[Call] = [await request.call(bus) for request in requests]
    assert [call.policy.name for call in calls] == pools
    assert [call.policy.base for call in calls] == [f"scripted-{pool}" for pool in pools]
