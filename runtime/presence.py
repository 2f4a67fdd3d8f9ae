"""The supervisor's ear on the bus: which workers say that they are ready."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from bus import Bus, present, probe
from runtime.config import Settings


async def connect(
    settings: Settings,
) -> tuple[Callable[[], Awaitable[set[str]]], Callable[[], Awaitable[None]]]:
    """A function that names the workers that are ready, and one that closes the connection.

    Raises `BusUnavailable` when Redis can't be reached, or is none that keeps what it accepts.
    """
    bus = Bus(settings.bus)
    try:
        await bus.start()
        await bus.check_writable()
        await probe(bus.redis)
    except BaseException:
        await bus.close()
        raise

    async def ready() -> set[str]:
        return {worker.name for worker in await present(bus) if worker.state != "starting"}

    return ready, bus.close
