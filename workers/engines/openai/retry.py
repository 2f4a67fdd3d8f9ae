"""How long to wait before an endpoint is asked again."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime


@dataclass(frozen=True)
class RetryPolicy:
    """Exponential backoff with full jitter: a uniform draw from [0, min(cap, base * 2**k)).

    Full jitter spreads the clients that failed together over the whole window, so that they do
    not come back together.
    """

    attempts: int
    base_seconds: float
    cap_seconds: float

    def wait_seconds(
        self, failures: int, retry_after: float | None, dice: random.Random
    ) -> float | None:
        """Wait after the `failures`-th failure (from 1), or `None` when it was the last attempt.

        The endpoint's own `retry_after` is a floor: the jitter comes on top of it.
        """
        if failures >= self.attempts:
            return None
        window = min(self.cap_seconds, self.base_seconds * 2.0 ** (failures - 1))
        jitter = dice.uniform(0.0, window)
        return jitter if retry_after is None else retry_after + min(jitter, self.base_seconds)


def retry_after_seconds(headers: Mapping[str, str]) -> float | None:
    """What `Retry-After-Ms` or `Retry-After` (seconds or an HTTP date) asks for; `None` if
    neither is there or makes sense."""
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    raw = headers.get("retry-after")
    if raw is None:
        return None
    seconds = _number(raw)
    if seconds is not None:
        return seconds
    try:
        return max(0.0, parsedate_to_datetime(raw).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None


def _number(raw: str | None) -> float | None:
    try:
        value = float(raw) if raw is not None else math.nan
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None
