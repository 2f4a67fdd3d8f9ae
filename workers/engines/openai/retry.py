"""Whether and when to ask an endpoint again: how many useless answers that are paid for one request
may cost, and how long to wait."""

from __future__ import annotations

import math
import random
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

from loopline.agents.records import Usage
from loopline.workers.engines.settings import ModelSettings, cost_micro_dollars

_REMEMBERED = 10_000
"""Number of requests to remember: a step that is retried asks with the same id."""


@dataclass(frozen=True)
class RetryPolicy:
    """Exponential backoff with full jitter: a uniform draw from [0, min(cap, base * 2**k)).

    Full jitter spreads clients that failed together over the whole window, so that they do not
    return together.
    """

    attempts: int
    base_seconds: float
    cap_seconds: float

    def wait_seconds(
        self, failures: int, retry_after: float | None, rng: random.Random
    ) -> float | None:
        """Wait after failure number `failures` (from 1), or `None` after the last attempt.

        The endpoint's own `retry_after` is a minimum: the jitter is added to it.
        """
        if failures >= self.attempts:
            return None
        window = min(self.cap_seconds, self.base_seconds * 2.0 ** (failures - 1))
        jitter = rng.uniform(0.0, window)
        return jitter if retry_after is None else retry_after + min(jitter, self.base_seconds)


def retry_after_seconds(headers: Mapping[str, str]) -> float | None:
    """The wait in `Retry-After-Ms` or `Retry-After` (seconds or an HTTP date); `None` if neither is
    present and valid."""
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


@dataclass
class _Spent:
    unreadable: int = 0
    answers: int = 0
    micro_dollars: int = 0
    last: int = 0
    why: str = ""


class UselessAnswers:
    """Useless answers of one endpoint, by request, over all its attempts in this process."""

    def __init__(self, settings: ModelSettings) -> None:
        self._settings = settings
        self._spent: OrderedDict[str, _Spent] = OrderedDict()

    def unreadable(self, request_id: str) -> int:
        """Number of answers to the request that were not completions, paid for or not."""
        spent = self._spent.get(request_id)
        return 0 if spent is None else spent.unreadable

    def add_unreadable(self, request_id: str) -> None:
        self._entry(request_id).unreadable += 1

    def add(self, request_id: str, usage: Usage | None, why: str) -> None:
        """Count one more answer that was paid for, and why it is useless; `usage` is None if the
        endpoint did not report any."""
        spent = self._entry(request_id)
        spent.answers += 1
        spent.why = why
        spent.last = 0 if usage is None else cost_micro_dollars(usage, self._settings.price)
        spent.micro_dollars += spent.last

    def _entry(self, request_id: str) -> _Spent:
        spent = self._spent.setdefault(request_id, _Spent())
        self._spent.move_to_end(request_id)
        while len(self._spent) > _REMEMBERED:
            self._spent.popitem(last=False)
        return spent

    def forget(self, request_id: str) -> None:
        """Forget a request that has got a usable answer."""
        self._spent.pop(request_id, None)

    def exhausted(self, request_id: str) -> str | None:
        """Why the request may not be sent again; None if it may. The next answer is assumed to cost
        as much as the last one."""
        spent = self._spent.get(request_id)
        if spent is None:
            return None
        settings = self._settings
        if spent.answers >= settings.max_useless_answers:
            limit = f"max_useless_answers = {settings.max_useless_answers}"
        elif spent.micro_dollars + spent.last > settings.max_useless_dollars * 1_000_000:
            limit = f"max_useless_dollars = {settings.max_useless_dollars}"
        else:
            return None
        return (
            f"{spent.answers} answers to the request were paid for but could not be used "
            f"({spent.micro_dollars / 1e6:.6g} USD), so it is not sent again ({limit}); the last: "
            f"{spent.why}"
        )
