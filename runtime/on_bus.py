"""Single requests from commands to the bus of a deployment. Heavy modules are imported on first
use: the help of a command needs none of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from loopline.bus import Bus
    from loopline.runtime.client.client import Client
    from loopline.runtime.client.deployment import Deployment

T = TypeVar("T")


def query_bus(redis_url: str | None, question: Callable[[Bus], Awaitable[T]]) -> T:
    """Return the bus's answer. Raises `InputError` if the bus refuses the request,
    `BusUnavailable`, `Unreachable`."""
    from loopline.bus import CLIENT_PATIENCE, Bus, BusError, BusUnavailable
    from loopline.runtime.client.deployment import find
    from loopline.runtime.errors import InputError

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


def run_with_client(redis_url: str | None, do: Callable[[Client, Deployment], Awaitable[T]]) -> T:
    """Call `do` with a client of the deployment and return its result. Raises `Unreachable` if
    there is no deployment, and whatever `do` raises."""
    from loopline.runtime.client.client import Client
    from loopline.runtime.client.deployment import find

    where = find(redis_url=redis_url)

    async def done() -> T:
        async with Client.of(where.settings) as client:
            return await do(client, where)

    return asyncio.run(done())
