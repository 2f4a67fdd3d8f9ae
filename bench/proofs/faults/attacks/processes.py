"""Attacks on workers."""

from __future__ import annotations

from loopline.bench.proofs.faults.attacks.base import Attack, interpolate
from loopline.bench.proofs.faults.fleet import Slot

STOP_LEASES = (0.5, 2.5)
"""Least and most duration of a pause, in leases: most workers wake up after their work was taken
over."""
CLOCK_SECONDS = 7200.0
"""Most seconds by which a clock is set forward or back."""
CLOCK_LEASES = (0.5, 4.0)


class Kill(Attack):
    name, weight, about = "kill", 50, "SIGKILL of a worker; another one starts"

    async def inject(self, place: float, hardness: float) -> None:
        slot = _choose_slot(self, place)
        self.scene.fleet.kill(slot)
        self.scene.fleet.start(slot)


class Stop(Attack):
    name, weight, about = "stop", 35, "SIGSTOP of a worker for half a lease to two and a half"

    async def inject(self, place: float, hardness: float) -> None:
        fleet, slot = self.scene.fleet, _choose_slot(self, place)
        name = slot.name
        fleet.stop(slot)

        async def wake() -> None:
            if slot.name == name:
                fleet.resume(slot)

        self.scene.after(self.scene.lease_seconds * interpolate(STOP_LEASES, hardness), wake)


class Clock(Attack):
    name, weight, about = "clock", 10, "a worker's clock jumps by up to two hours, and back"
    needs = "clocks"

    async def inject(self, place: float, hardness: float) -> None:
        clocks, slot = self.scene.clocks, _choose_slot(self, place)
        assert clocks is not None
        clocks.set(slot.index, CLOCK_SECONDS * (2 * hardness - 1))

        async def right() -> None:
            clocks.set(slot.index, 0.0)

        self.scene.after(self.scene.lease_seconds * interpolate(CLOCK_LEASES, place), right)


def _choose_slot(attack: Attack, place: float) -> Slot:
    targets = attack.scene.targets()
    return targets[int(place * len(targets))]
