"""A time limit that ends a proof with a sentence in place of a bare `TimeoutError`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from loopline.bench.errors import BenchError


@asynccontextmanager
async def time_limit(seconds: float, failure: str) -> AsyncGenerator[None]:
    """The block may take this long. Raises `BenchError` with `failure`, such as "the server did not
    start", and the limit, if it takes longer; other `TimeoutError`s of the block pass."""
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            yield
    except TimeoutError:
        if not limit.expired():
            raise
        raise BenchError(f"{failure} within {seconds:g} s") from None
