"""Runs found on the bus, by walking its keys."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from loopline.bus import Bus
from loopline.runtime.observe.run_history import resolve, run_ids
from tests.bus.payloads import admit


@pytest.fixture
def walking_twice(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> Bus:
    """A bus whose SCAN meets each key twice, as Redis may while its table shrinks."""
    once = bus.redis.scan_iter

    async def twice(**options: Any) -> AsyncIterator[bytes]:
        for _ in range(2):
            async for key in once(**options):
                yield key

    monkeypatch.setattr(bus.redis, "scan_iter", twice)
    return bus


async def test_a_run_that_a_walk_meets_twice_is_listed_once(walking_twice: Bus) -> None:
    admitted = [await admit(walking_twice) for _ in range(3)]
    assert await run_ids(walking_twice) == sorted(admitted, reverse=True)


async def test_a_part_of_an_id_that_a_walk_meets_twice_still_means_one_run(
    walking_twice: Bus,
) -> None:
    run_id = await admit(walking_twice)
    await admit(walking_twice)
    assert await resolve(walking_twice, run_id[:23]) == run_id
