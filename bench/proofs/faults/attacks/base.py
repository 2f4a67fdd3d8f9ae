"""The interface of an attack, and the scene that it can affect."""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import ClassVar

from loopline.bench.proofs.faults.fleet import Fleet, Slot
from loopline.bench.proofs.faults.monitor import Monitor
from loopline.bench.proofs.faults.proxy import Proxy
from loopline.bench.proofs.faults.resources import Clocks, FarMachine, SmallDisk
from loopline.testing import RedisProcess


@dataclass
class Scene:
    """The parts of a deployment that attacks can affect. A part that is None does not exist, and
    `Attack.unable` returns the reason."""

    fleet: Fleet
    server: RedisProcess
    monitor: Monitor
    lease_seconds: float
    proxy: Proxy | None = None
    disk: SmallDisk | None = None
    clocks: Clocks | None = None
    far: FarMachine | None = None
    missing: dict[str, str] = field(default_factory=dict[str, str])
    """Reason why a part is missing, by field."""
    _over: asyncio.Event = field(default_factory=asyncio.Event)
    _undoing: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])

    def targets(self) -> list[Slot]:
        """Slots of the workers that are ready and not paused."""
        ready = self.monitor.ready
        return [slot for slot in self.fleet.slots if slot.name in ready and not slot.stopped]

    def after(self, seconds: float, undo: Callable[[], Awaitable[None]]) -> None:
        """Undo an attack after this many seconds, or when all attacks are over."""

        async def wait() -> None:
            await wait_with_timeout(self._over, seconds)
            await undo()

        task = asyncio.create_task(wait())
        self._undoing.add(task)
        task.add_done_callback(self._undoing.discard)

    async def undo_all(self) -> None:
        """Undo all attacks that are still active."""
        self._over.set()
        while self._undoing:
            await asyncio.gather(*self._undoing)


class Attack(ABC):
    """One way to harm a deployment. Its draws come from the plan: `place` and `hardness` are
    uniform in [0, 1)."""

    name: ClassVar[str]
    weight: ClassVar[int]
    """Weight in the random choice among the attacks."""
    about: ClassVar[str]
    """Description in a few words, for the help."""
    needs: ClassVar[str] = ""
    """Field of the scene that it needs."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene

    def unable(self) -> str:
        """Reason why it can't be done here; empty if it can."""
        if self.needs and getattr(self.scene, self.needs) is None:
            return self.scene.missing.get(self.needs, f"there is no {self.needs} here")
        return ""

    @abstractmethod
    async def inject(self, place: float, hardness: float) -> None:
        """Make the attack, and schedule its end (`Scene.after`)."""


async def wait_with_timeout(event: asyncio.Event, seconds: float) -> None:
    """Return when the event is set, or after `seconds`."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


def interpolate(bounds: tuple[float, float], share: float) -> float:
    low, high = bounds
    return low + share * (high - low)
