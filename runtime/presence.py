"""The supervisor's ear on the bus: what its server is, and which workers say how they are."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from bus import Bus, Server, present, probe
from runtime.config import Settings


async def connect(
    settings: Settings,
) -> tuple[Server, Callable[[], Awaitable[dict[str, str]]], Callable[[], Awaitable[None]]]:
    """The server, a function that gives the state of each worker by its name, and one that closes
    the connection.

    Raises `BusUnavailable` when Redis can't be reached, or is none that keeps what it accepts.
    """
    bus = Bus(settings.bus, standing="founder")
    try:
        await bus.start()
        await bus.check_writable()
        server = await probe(bus.redis)
    except BaseException:
        await bus.close()
        raise

    async def states() -> dict[str, str]:
        return {worker.name: worker.state for worker in await present(bus)}

    return server, states, bus.close
