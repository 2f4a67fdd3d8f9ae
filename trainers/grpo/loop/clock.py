"""Measures how a loop spends its time. The trainer does one thing at a time, so the parts add up to
the elapsed time."""

from __future__ import annotations

import time
from typing import Literal

from loopline.trainers.grpo.loop.report import Seconds

Part = Literal["rollout", "wait", "train", "publish"]


class Clock:
    """Clock that starts with `train`: the work before the first round is the trainer's."""

    def __init__(self) -> None:
        self._part: Part = "train"
        self._since = time.monotonic()
        self._spent: dict[Part, float] = {}

    def turn(self, part: Part) -> None:
        """Count the time from now on as this part."""
        now = time.monotonic()
        self._add(self._part, now - self._since)
        self._part, self._since = part, now

    def count_as_waiting(self, seconds: float) -> None:
        """Count the last seconds of rollouts as waiting: they were spent on runs that had already
        ended."""
        self.turn(self._part)
        waited = min(max(seconds, 0.0), self._spent.get("rollout", 0.0))
        self._add("rollout", -waited)
        self._add("wait", waited)

    def lap(self) -> Seconds:
        """Seconds since the last call, by part."""
        self.turn(self._part)
        spent, self._spent = self._spent, {}
        return Seconds.model_validate(spent)

    def _add(self, part: Part, seconds: float) -> None:
        self._spent[part] = self._spent.get(part, 0.0) + seconds
