"""The same calls with a plain queue: arq, which runs a job again if its worker died."""

from __future__ import annotations

import asyncio
import logging
import random
from functools import partial
from pathlib import Path
from typing import Any

from arq import create_pool, worker
from arq.connections import RedisSettings

from loopline.bench.proofs.effects import counter
from loopline.bench.proofs.effects.counter import Effects, read_effects, take_effect
from loopline.bench.proofs.effects.interruption import LineWatch
from loopline.bench.proofs.effects.processes import Crew, Interruptions, files_of
from loopline.bench.proofs.time_limit import time_limit

TIMEOUT_SECONDS = 1
"""Seconds of a job's time-out; arq checks a dead worker's job ten seconds after it."""
WORKERS = 3
LIMIT_SECONDS = 240.0
FILES = [*files_of([counter]), str(worker.__file__)]


def serve(url: str, file: Path, watch: LineWatch) -> None:
    """Run a worker of the queue until it is killed."""
    logging.disable(logging.CRITICAL)

    async def act(context: dict[str, Any], call: int) -> str:
        take_effect(file, call)
        return f"done {call}"

    watch.install()
    asyncio.run(_serve(url, act))


async def _serve(url: str, act: Any) -> None:
    queue = worker.Worker(
        [worker.func(act, name="act", max_tries=1_000)],
        redis_settings=RedisSettings.from_dsn(url), job_timeout=TIMEOUT_SECONDS, poll_delay=0.05,
        max_jobs=8, handle_signals=False,
    )  # fmt: skip
    await queue.async_run()


async def play(
    url: str, folder: Path, calls: int, rng: random.Random
) -> tuple[Effects, Interruptions]:
    """Make this many calls, through workers that are interrupted meanwhile."""
    file = folder / "queue"
    crew = Crew(
        partial(serve, url, file), FILES, folder, rng, size=WORKERS, pause_seconds=TIMEOUT_SECONDS
    )
    finished = asyncio.Event()

    async def call_all() -> None:
        try:
            pool = await create_pool(RedisSettings.from_dsn(url))
            late = f"arq did not end {calls} jobs"
            async with time_limit(LIMIT_SECONDS, late), asyncio.TaskGroup() as group:
                for call in range(calls):
                    await crew.keep_pace(call)
                    job = await pool.enqueue_job("act", call)
                    assert job is not None
                    group.create_task(job.result(poll_delay=0.2))
            await pool.aclose()
        finally:
            finished.set()

    await asyncio.gather(call_all(), crew.work(finished))
    return read_effects(file), crew.done
