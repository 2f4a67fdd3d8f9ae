"""Says why nothing begins, if a bus refuses runs for longer than a moment."""

from __future__ import annotations

import time
from collections.abc import Callable

from loopline.bus import Overloaded

FIRST_SECONDS = 10.0
"""Seconds of refusals before a notice: short ones are usual while other runs end."""
FURTHER_SECONDS = 60.0


class AdmissionNotice:
    """Notice for all runs that one command submits."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._next: float | None = None

    def admitted(self) -> None:
        self._next = None

    def refused(self, error: Overloaded) -> None:
        """Note another refusal without an admission since the last one."""
        now = time.monotonic()
        if self._next is None:
            self._next = now + FIRST_SECONDS
        elif now >= self._next:
            self._next = now + FURTHER_SECONDS
            self._say(
                f"waiting for room on the bus: {error}. Runs that end make room once a recorder "
                "has written them: `runtime status` shows both"
            )
