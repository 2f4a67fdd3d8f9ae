"""The attacker. The seed determines the plan: each attack, its delay after the previous one and its
hardness; its target depends on the workers that are up at that moment."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Mapping, Sequence

from loopline.bench.proofs.faults.attacks import ATTACKS, Attack, Scene
from loopline.bench.proofs.faults.attacks.base import wait_with_timeout

FAULTS = {"kill": 50, "stop": 35, "redis": 15}
"""Weights of the attacks that need only workers and Redis."""
PAUSE_LEASES = (0.1, 0.6)
"""Range of the least pause between two attacks, in leases; the pause is drawn from it."""
COMMITS = (0.0, 20.0)
"""Range of the least number of commits between two attacks, drawn from it: on a slow machine, where
workers start slowly, they must make progress too."""
QUORUM = 0.6
"""Share of the fleet that must be working before the next attack."""
LOOK_SECONDS = 0.1


class Chaos:
    """Injects faults until it is stopped; then leaves everything running."""

    def __init__(
        self,
        seed: int,
        scene: Scene,
        weights: Mapping[str, int] = FAULTS,
        commits: tuple[float, float] = COMMITS,
        attacks: Sequence[type[Attack]] = ATTACKS,
    ) -> None:
        """Create an attacker. `weights`: weight by attack name; `commits`: range of the least
        number of steps between two attacks; `attacks`: attacks to choose from."""
        self.injected: Counter[str] = Counter()
        self.unable: dict[str, str] = {}
        """Reason why an attack can't be made here, by attack."""
        self._random = random.Random(seed)
        self._scene = scene
        self._commits = commits
        possible = [attack(scene) for attack in attacks if weights.get(attack.name)]
        self.unable = {attack.name: why for attack in possible if (why := attack.unable())}
        self._attacks = [attack for attack in possible if attack.name not in self.unable]
        self._weights = [weights[attack.name] for attack in self._attacks]

    async def run(self, enough: asyncio.Event) -> None:
        """Inject faults until `enough` is set."""
        scene = self._scene
        while not enough.is_set() and self._attacks:
            # All draws are made first, so that the plan does not depend on the targets.
            pause = self._random.uniform(*PAUSE_LEASES) * scene.lease_seconds
            commits = scene.monitor.commits + self._random.uniform(*self._commits)
            attack = self._random.choices(self._attacks, self._weights)[0]
            place, hardness = self._random.random(), self._random.random()
            await wait_with_timeout(enough, pause)
            while not enough.is_set() and (
                scene.monitor.commits < commits or not self._has_quorum()
            ):
                await wait_with_timeout(enough, LOOK_SECONDS)
            if not enough.is_set():
                self.injected[attack.name] += 1
                await attack.inject(place, hardness)
        await scene.undo_all()
        for slot in scene.fleet.slots:
            scene.fleet.resume(slot)

    def _has_quorum(self) -> bool:
        return len(self._scene.targets()) >= QUORUM * len(self._scene.fleet.slots)
