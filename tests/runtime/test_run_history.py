"""Runs found on the bus."""

from __future__ import annotations

import pytest

from loopline.bus import Bus
from loopline.runtime.errors import InputError
from loopline.runtime.observe.run_history import resolve
from tests.bus.payloads import admit


async def test_a_unique_part_of_an_id_finds_its_run(bus: Bus) -> None:
    run_id = await admit(bus)
    await admit(bus)
    assert await resolve(bus, run_id[:23]) == run_id


async def test_the_error_for_an_unknown_part_of_an_id_names_it(bus: Bus) -> None:
    with pytest.raises(InputError, match="'01234567-89' in its id"):
        await resolve(bus, "01234567-89")
