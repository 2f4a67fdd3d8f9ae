"""A finished benchmark of eight sums, three arms, one wrong answer."""

from __future__ import annotations

import asyncio
from pathlib import Path

from loopline.bench.checkers import Scorer
from tests.bench.benchmarks import created, items, manifest, run
from tests.bench.local_client import LocalClient


def finished_benchmark(path: Path) -> Path:
    """A folder that contains the finished benchmark."""
    directory = created(path, manifest(items(8, wrong=[3])))

    async def whole() -> None:
        with Scorer() as scorer:
            await run(directory, LocalClient(), scorer)

    asyncio.run(whole())
    return path
