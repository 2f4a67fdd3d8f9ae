"""A proof's wait that takes too long says what did not happen."""

from __future__ import annotations

import asyncio

import pytest

from loopline.bench.errors import BenchError
from loopline.bench.proofs.time_limit import time_limit


async def test_a_block_that_takes_longer_than_its_limit_ends_in_a_sentence() -> None:
    with pytest.raises(BenchError, match=r"^the server did not start within 0.01 s$"):
        async with time_limit(0.01, "the server did not start"):
            await asyncio.Event().wait()


async def test_a_time_out_inside_the_block_is_not_taken_for_the_limit() -> None:
    with pytest.raises(TimeoutError, match="from inside"):
        async with time_limit(60, "the server did not start"):
            raise TimeoutError("from inside")
