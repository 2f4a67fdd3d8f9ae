"""Runs found on the bus."""

from __future__ import annotations

import pytest

from loopline.bus import Bus
from loopline.runtime.errors import InputError
from loopline.runtime.observe.run_history import resolve
from tests.bus.payloads import admit


async def test_a_part_of_an_id_that_one_run_has_means_that_run(bus: Bus) -> None:
    run_id = await admit(bus)
    await admit(bus)
    assert await resolve(bus, run_id[:23]) == run_id


async def test_a_part_of_an_id_that_no_run_has_is_named(bus: Bus) -> None:
    with pytest.raises(InputError, match="'01234567-89' in its id"):
        await resolve(bus, "01234567-89")
