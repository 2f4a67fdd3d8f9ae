"""Circuit breakers of endpoints, shared by all workers: one state on the bus (`breaker.lua`).

All workers share what one finds out: after this many failed requests in a row, across all workers,
no worker calls the endpoint for a while. Then a single worker probes it and renews its claim
meanwhile; if that worker dies, another one probes.
"""

from __future__ import annotations

import asyncio
import hashlib
from typing import Literal, NamedTuple, cast

from redis.asyncio import Redis

from loopline.bus import scripts
from loopline.bus.bus import Bus
from loopline.bus.keys import Keys

PROBE_SECONDS = 10.0
"""Seconds after which another worker may probe if the probing worker has not renewed its claim."""
MOST_SECONDS = 1.0
"""Maximum time in seconds that asking for permission may delay a request."""

Word = Literal["closed", "open", "probe"]


class Verdict(NamedTuple):
    """The state of a breaker, as the asking request sees it."""

    word: Word
    """`probe`: the breaker is open, and this request is the one that probes the endpoint."""
    failures: int
    """Failed requests in a row."""
    left: float
    """Seconds until a probe may be sent, if the breaker is open."""


class Circuit:
    """Breaker of one endpoint, in one process. Every method raises redis-py's errors, or
    `TimeoutError` after `MOST_SECONDS`."""

    def __init__(self, bus: Bus, endpoint: str, *, failures: int, seconds: float) -> None:
        """`endpoint` identifies what fails or answers. After this many `failures` in a row no
        worker calls it for this many `seconds`."""
        self._bus = bus
        self._key = breaker_key(bus.keys, endpoint)
        self._failures = failures
        self._open_ms = int(1000 * seconds)

    async def ask(self, token: str) -> Verdict:
        """Whether the request identified by `token` may be sent. The caller must renew a probe, and
        settle it with one of the other methods."""
        return await self._call("ask", token)

    async def answered(self, token: str, *, forced: bool) -> Verdict:
        """Record that the endpoint has answered. `forced`: the request was sent without
        permission."""
        return await self._call("answered", token, forced=forced)

    async def failed(self, token: str) -> Verdict:
        return await self._call("failed", token)

    async def renew(self, token: str) -> Verdict:
        """Record that the probe is still in progress."""
        return await self._call("renew", token)

    async def release(self, token: str) -> Verdict:
        """Record that the probe had no result: another request may probe."""
        return await self._call("release", token)

    async def _call(self, what: str, token: str, *, forced: bool = False) -> Verdict:
        args: list[scripts.Value] = [
            what,
            self._failures,
            self._open_ms,
            token,
            int(1000 * PROBE_SECONDS),
            int(forced),
        ]
        async with asyncio.timeout(MOST_SECONDS):
            word, failures, left = await scripts.call(self._bus.redis, "breaker", [self._key], args)
        return Verdict(cast("Word", word.decode()), int(failures), int(left) / 1000)


def breaker_key(keys: Keys, endpoint: str) -> str:
    return keys.breaker(hashlib.sha256(endpoint.encode()).hexdigest()[:24])


async def open_since_failures(redis: Redis, keys: Keys, endpoint: str) -> int | None:
    """Number of consecutive failed requests if the endpoint's breaker is open; None if it is
    closed. Raises what Redis raises."""
    key = breaker_key(keys, endpoint)
    failures, opens_until = await redis.hmget(key, ["failures", "until"])  # pyright: ignore
    return None if opens_until is None else int(failures or 0)
