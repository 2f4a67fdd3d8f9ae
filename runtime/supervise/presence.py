"""Connects the supervisor to the bus: the server, and the presence of the workers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from loopline.bus import Bus, Server, WorkerPresence, live_workers, probe
from loopline.runtime.config.settings import Settings
from loopline.runtime.config.shared import (
    STORE,
    claims_of,
    configuration_of,
    require_same,
    require_same_store,
    shared_configuration,
)
from loopline.runtime.config.state import StateDirectory


async def connect(
    settings: Settings, *, profile: str, state: StateDirectory
) -> tuple[
    Server, Callable[[], Awaitable[dict[str, WorkerPresence]]], Callable[[], Awaitable[None]]
]:
    """Return the server, a function that returns the present workers by name, and one that
    disconnects.

    Raises `BusUnavailable` if Redis can't be reached or doesn't keep the data that it accepts;
    `DeploymentMismatch` and `UserError` if present workers of the same deployment have other
    settings, serve something else or record to another store.
    """
    claims = claims_of(settings, profile, state)
    bus = Bus(settings.bus, standing="founder", claims=claims)
    try:
        await bus.start()
        require_same_store(bus.agreement, claims[STORE])
        if (configuration := configuration_of(bus.agreement)) is not None:
            require_same(shared_configuration(settings, profile), configuration)
        await bus.check_writable()
        server = await probe(bus.redis)
    except BaseException:
        await bus.close()
        raise

    async def present() -> dict[str, WorkerPresence]:
        return {worker.name: worker for worker in await live_workers(bus)}

    return server, present, bus.close
