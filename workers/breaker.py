"""A circuit breaker: an endpoint that has failed again and again is not asked for some time."""

from __future__ import annotations

import time
from collections.abc import Callable

FAILURES = frozenset({"unavailable", "timeout"})
"""Kinds of errors that say nothing of the request: another endpoint may answer it."""


class Breaker:
    """Of one endpoint, in one process."""

    def __init__(
        self, failures: int, seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """It opens after `failures` failures in a row. After `seconds` one request is let
        through: if it is answered, the breaker closes."""
        self._most = failures
        self._seconds = seconds
        self._clock = clock
        self._failures = 0
        self._opened: float | None = None

    def allows(self) -> bool:
        """Whether a request may be sent. Who is let through an open breaker says what came of
        it."""
        if self._opened is None:
            return True
        if self._clock() - self._opened < self._seconds:
            return False
        self._opened = self._clock()  # the others wait for what this one finds
        return True

    def answered(self) -> None:
        self._failures, self._opened = 0, None

    def failed(self) -> None:
        self._failures += 1
        if self._failures >= self._most:
            self._opened = self._clock()
