"""All attacks on a deployment whose processes the bench starts itself."""

from __future__ import annotations

from loopline.bench.proofs.faults.attacks.base import Attack, Scene
from loopline.bench.proofs.faults.attacks.network import (
    Delay,
    HalfClose,
    Link,
    Partition,
    Refuse,
    Reset,
    Tear,
)
from loopline.bench.proofs.faults.attacks.processes import Clock, Kill, Stop
from loopline.bench.proofs.faults.attacks.server import Disk, Memory, RestartRedis

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
    Link,
    Memory,
    Disk,
    Clock,
)
WEIGHTS = {attack.name: attack.weight for attack in ATTACKS}

__all__ = ["ATTACKS", "WEIGHTS", "Attack", "Scene"]
