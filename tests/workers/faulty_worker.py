"""`python -m tests.workers.faulty_worker FAULT SETTINGS.json`: a real worker with a fault.

`slows`: each step of a model takes longer than the previous one, so that a text of a few dozen
tokens starts at once but does not finish before the test has acted. `breaks`: the thread that owns
the model dies in the middle of its work. `misjudges`: the rewards of Plan-Path raise on every
second grid, or on all if there is one turn.
"""

from __future__ import annotations

import sys
import time
import zlib
from collections import Counter
from typing import Any

from loopline.agents.environments.game import Rewards
from loopline.agents.environments.plan_path.puzzle import PlanPathPuzzle
from loopline.workers.__main__ import main
from loopline.workers.engines.local.thread import ModelThread

LINGER_SECONDS, SLOWER = 0.03, 1.5
"""The fifth step takes 0.2 s, the tenth 2 s, and the fifteenth 13 s."""

LAST_STEP = 8

_deliver = ModelThread._deliver  # pyright: ignore[reportPrivateUsage]
_steps: Counter[ModelThread[Any]] = Counter()


def _deliver_badly(self: ModelThread[Any]) -> None:
    _deliver(self)
    _steps[self] += 1
    if FAULT == "slows":
        time.sleep(LINGER_SECONDS * SLOWER ** _steps[self])
    elif _steps[self] == LAST_STEP:
        raise RuntimeError("the device was lost")


_rewards = PlanPathPuzzle.rewards


def _misjudged(self: PlanPathPuzzle, *step: Any, **named: Any) -> Rewards:
    drawn = "".join(self.instance.grid)
    if zlib.crc32(drawn.encode()) % 2 or self.setting.turns == 1:
        raise ZeroDivisionError("the goal has no distance")
    return _rewards(self, *step, **named)


if __name__ == "__main__":
    FAULT = sys.argv.pop(1)
    if FAULT == "misjudges":
        PlanPathPuzzle.rewards = _misjudged
    else:
        ModelThread._deliver = _deliver_badly  # pyright: ignore[reportPrivateUsage]
    sys.exit(main())
