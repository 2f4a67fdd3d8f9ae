"""`python -m tests.workers.faulty_worker FAULT SETTINGS.json`: a real worker with a bad day.

`slows`: each step of a model takes longer than the one before, so that a text of a few dozen tokens
begins at once and is not at its end before the test has done what it wants to.
`breaks`: the thread that owns the model dies in the middle of its work.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from typing import Any

from workers.__main__ import main
from workers.engines.local.decoder import Decoder

LINGER_SECONDS, SLOWER = 0.03, 1.5
"""The fifth step takes 0.2 s, the tenth 2 s, and the fifteenth 13 s."""

LAST_STEP = 8

_deliver = Decoder._deliver  # pyright: ignore[reportPrivateUsage]
_steps: Counter[Decoder[Any]] = Counter()


def _deliver_badly(self: Decoder[Any]) -> None:
    _deliver(self)
    _steps[self] += 1
    if FAULT == "slows":
        time.sleep(LINGER_SECONDS * SLOWER ** _steps[self])
    elif _steps[self] == LAST_STEP:
        raise RuntimeError("the device was lost")


if __name__ == "__main__":
    FAULT = sys.argv.pop(1)
    Decoder._deliver = _deliver_badly  # pyright: ignore[reportPrivateUsage]
    sys.exit(main())
