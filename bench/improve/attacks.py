"""The attacks of `bench faults` on a real `runtime up`: the supervisor reports the workers, Redis
is behind a proxy, and the supervisor itself can be killed, too."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, NoReturn

import psutil

from loopline.bench.proofs.faults.attacks import Attack
from loopline.bench.proofs.faults.attacks.network import (
    Delay,
    HalfClose,
    Partition,
    Refuse,
    Reset,
    Tear,
)
from loopline.bench.proofs.faults.attacks.processes import Kill, Stop
from loopline.bench.proofs.faults.attacks.server import Memory, RestartRedis
from loopline.bench.proofs.faults.fleet import Fleet, Slot
from loopline.bench.proofs.faults.monitor import Monitor
from loopline.bench.proofs.faults.supervised import ABOUT, NAME, Deployment
from loopline.bus import OUTAGE, Bus
from loopline.runtime.errors import Unreachable
from loopline.runtime.supervise.control import ask_supervisor


@dataclass(slots=True)
class SupervisedSlot(Slot):
    """Worker of the supervisor, which chooses its name."""

    label: str = ""

    @property
    def name(self) -> str:
        return self.label


class SupervisedFleet(Fleet):
    """The workers of a supervisor, which replaces each worker that exits."""

    def __init__(self, deployment: Deployment, start: Callable[[], Awaitable[None]]) -> None:
        """Create a fleet; `start` restarts the deployment's supervisor and waits until its workers
        are ready."""
        super().__init__((), deployment.state.path, _has_no_settings)
        self.ready: frozenset[str] = frozenset()
        """Names of ready workers."""
        self.uncounted_seconds = 0.0
        """CPU seconds of workers that died with their supervisor, so that no process waited for
        them."""
        self._deployment = deployment
        self._start_again = start
        self._pids: dict[str, int] = {}
        self._stopped: set[str] = set()

    def refresh(self) -> None:
        """Ask the supervisor for its workers. While the supervisor is down, no worker is ready."""
        workers = self._workers()
        self.ready = frozenset(worker["name"] for worker in workers if worker["state"] == "ready")
        if not workers:
            return
        self._pids = {str(worker["name"]): int(worker["pid"]) for worker in workers}
        self._stopped &= set(self._pids)
        self.slots = [
            SupervisedSlot(at, worker["kind"], stopped=name in self._stopped, label=name)
            for at, worker in enumerate(workers)
            for name in (str(worker["name"]),)
        ]

    def _workers(self) -> list[dict[str, Any]]:
        run = self._deployment.state.running()
        if run is None:
            return []
        try:
            status = ask_supervisor(run.control, {"do": "status"})
        except Unreachable:
            return []
        return [worker for worker in status["workers"] if worker["pid"]]

    def start(self, slot: Slot) -> None:
        """Do nothing: the supervisor starts workers."""

    def kill(self, slot: Slot) -> None:
        self._signal(slot, signal.SIGKILL)

    def stop(self, slot: Slot) -> None:
        self._stopped.add(slot.name)
        slot.stopped = True
        self._signal(slot, signal.SIGSTOP)

    def resume(self, slot: Slot) -> None:
        self._stopped.discard(slot.name)
        slot.stopped = False
        self._signal(slot, signal.SIGCONT)

    def revive(self) -> list[str]:
        """Do nothing: the supervisor restarts workers, and its log lists those that crashed."""
        return []

    async def restart(self) -> None:
        """Kill the supervisor and its workers with SIGKILL, then start another supervisor. Raises
        `BenchError` if it does not start."""
        for pid in self._pids.values():
            with contextlib.suppress(psutil.Error):
                times = psutil.Process(pid).cpu_times()
                self.uncounted_seconds += times.user + times.system
        self._pids, self._stopped, self.ready = {}, set(), frozenset()
        await asyncio.to_thread(self._deployment.kill)
        await self._start_again()

    def _signal(self, slot: Slot, number: signal.Signals) -> None:
        pid = self._pids.get(slot.name)
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):  # another attack was faster
                os.kill(pid, number)


def _has_no_settings(slot: Slot) -> NoReturn:
    raise RuntimeError(f"{slot.name} is started by its supervisor")


class SupervisedMonitor(Monitor):
    """Monitor that gets the ready workers from the supervisor."""

    def __init__(self, fleet: SupervisedFleet) -> None:
        super().__init__(fleet, ())
        self._supervised = fleet

    async def look(self, bus: Bus) -> None:
        await asyncio.to_thread(self._supervised.refresh)
        try:
            await self._count_commits(bus)
        except OUTAGE:
            self.ready = frozenset()
        else:
            self.ready = self._supervised.ready


class KillSupervisor(Attack):
    """Attack on only the supervisor, which `bench faults` has, too."""

    name, weight, about = NAME, 8, ABOUT

    async def inject(self, place: float, hardness: float) -> None:
        fleet = self.scene.fleet
        assert isinstance(fleet, SupervisedFleet)
        await fleet.restart()


ATTACKS: tuple[type[Attack], ...] = (
    Kill,
    Stop,
    RestartRedis,
    Reset,
    HalfClose,
    Tear,
    Delay,
    Partition,
    Refuse,
    Memory,
    KillSupervisor,
)
WEIGHTS = {attack.name: attack.weight for attack in ATTACKS}
