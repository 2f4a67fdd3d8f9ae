"""Decides when a dead worker is started again, and when it is `broken`. Pure: time is an argument.

Backoff doubles with each death in a row and carries jitter, so that workers that died of one cause
(a Redis restart, a bad disk) don't come back at the same time. A worker that has lived longer than
the window starts over. The breaker gives up a worker that died too often within the window: it
would only burn the machine and bury the reason under its own log.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field

from loopline.runtime.config.sections import SupervisorSettings


@dataclass
class RestartPolicy:
    """The deaths of one worker slot."""

    settings: SupervisorSettings
    random: random.Random = field(default_factory=random.Random)
    deaths: deque[float] = field(default_factory=deque[float])
    """Times of the deaths within the window, in monotonic seconds."""

    def died(self, now: float) -> float | None:
        """Note a death; return the pause in seconds before the restart, `None` when it is given up.

        pause = min(max, base · 2^(deaths−1)) · uniform(0.5, 1)
        """
        window = self.settings.crash_loop_seconds
        while self.deaths and now - self.deaths[0] > window:
            self.deaths.popleft()
        self.deaths.append(now)
        if len(self.deaths) >= self.settings.crash_loop_deaths:
            return None
        exponent = len(self.deaths) - 1
        pause = min(
            self.settings.backoff_max_seconds, self.settings.backoff_seconds * 2.0**exponent
        )
        return pause * self.random.uniform(0.5, 1.0)
