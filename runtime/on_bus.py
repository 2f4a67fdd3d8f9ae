"""One question to the bus of a deployment, for commands."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from loopline.bus import CLIENT_PATIENCE, Bus, BusError, BusUnavailable
from loopline.runtime.client.deployment import find
from loopline.runtime.errors import InputError

T = TypeVar("T")


def query_bus(redis_url: str | None, question: Callable[[Bus], Awaitable[T]]) -> T:
    """The answer. Raises `InputError` for what the bus refuses, `BusUnavailable`, `Unreachable`."""

    async def asked() -> T:
        settings = find(redis_url=redis_url).settings.bus
        async with Bus(settings, patience=CLIENT_PATIENCE) as bus:
            return await question(bus)

    try:
        return asyncio.run(asked())
    except BusUnavailable:
        raise
    except BusError as error:
        raise InputError(str(error)) from error
