"""Rate limits of an endpoint, shared by all workers: one bucket on the bus (`rate.lua`).

A call reserves a turn and sleeps until then: there is no polling, and callers are served in order
of arrival. For an endpoint without a known limit, nothing is sent to the bus.
"""

from __future__ import annotations

import asyncio
import hashlib

from loopline.bus import scripts
from loopline.bus.bus import Bus
from loopline.bus.connection import retry_during_outage
from loopline.bus.errors import BusError

LONGEST_WAIT = 86_400.0
"""Maximum wait in seconds; a run lasts no longer."""


class NoTurn(BusError):
    """The endpoint's next turn is later than the caller can wait."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"its rate limit allows the next call in {seconds:.1f} s")
        self.seconds = seconds


class RateBucket:
    """Bucket of one endpoint, in one process."""

    def __init__(
        self, bus: Bus, endpoint: str, *, requests: int | None, tokens: int | None
    ) -> None:
        """`endpoint` identifies what has the limit; `requests` and `tokens` are its limits per
        minute, as far as the settings specify them."""
        self._bus = bus
        digest = hashlib.sha256(endpoint.encode()).hexdigest()[:24]
        self._key = bus.keys.rate(digest)
        self._requests = requests or 0
        self._tokens = tokens or 0
        self._learned_limits = (0, 0)
        self._saw_limit = False
        """Whether the endpoint has refused a call, or stated a limit."""

    @property
    def limited(self) -> bool:
        """Whether this process knows of a limit."""
        return self._saw_limit or self._requests > 0 or self._tokens > 0

    @property
    def counts_tokens(self) -> bool:
        return self._tokens > 0 or self._learned_limits[1] > 0

    async def wait(self, tokens: int, longest: float | None) -> None:
        """Wait for the turn of a call for at most this many tokens. Raises `NoTurn` if the turn is
        not within `longest` seconds."""
        left = LONGEST_WAIT if longest is None else longest
        loop = asyncio.get_running_loop()
        ends = loop.time() + left
        while self.limited:
            wait = await self._take(tokens, ends - loop.time())
            if wait == 0:
                return
            await asyncio.sleep(wait)
            if await self._confirm_turn(ends):
                return

    async def _take(self, tokens: int, longest: float) -> float:
        longest_ms = max(0, int(1000 * longest))
        wait = await self._call(tokens, longest_ms, waited=False)
        if wait < 0:
            raise NoTurn((-1 - wait) / 1000)
        return wait / 1000

    async def _confirm_turn(self, ends: float) -> bool:
        """Return True when a call whose turn has come may be sent: later, if late calls have used
        up the limit. False if the endpoint has refused another call meanwhile: then the turn is
        lost. `ends`: the loop time at which the caller stops waiting. Raises `NoTurn`."""
        loop = asyncio.get_running_loop()
        while (wait := await self._call(0, 0, waited=True)) < 0:
            seconds = (-1 - wait) / 1000
            if loop.time() + seconds > ends:
                raise NoTurn(seconds)
            await asyncio.sleep(seconds)
        return wait == 0

    async def _call(self, tokens: int, longest_ms: int, *, waited: bool) -> int:
        args: list[scripts.Value] = [
            self._requests,
            self._tokens,
            tokens,
            longest_ms,
            int(waited),
            *self._learned_limits,
        ]
        return await retry_during_outage(
            "rate limit", lambda: scripts.call(self._bus.redis, "rate", [self._key], args)
        )

    async def learn(self, requests: int | None, tokens: int | None, pause: float | None) -> None:
        """Record the endpoint's response: its limits per minute, and that it accepts no call for
        this many seconds. Sends only news to the bus."""
        limits = (requests or self._learned_limits[0], tokens or self._learned_limits[1])
        if limits == self._learned_limits and not pause:
            return
        self._learned_limits, self._saw_limit = limits, True
        await self._note(pause or 0.0, *limits, unused=0)

    async def settle(self, reserved: int, used: int) -> None:
        """Correct the bucket after a call that reserved `reserved` tokens and used `used`."""
        if self.counts_tokens and reserved != used:
            await self._note(0.0, 0, 0, unused=reserved - used)

    async def _note(self, pause: float, requests: int, tokens: int, *, unused: int) -> None:
        pause_ms = int(1000 * min(pause, LONGEST_WAIT))
        args: list[scripts.Value] = [pause_ms, requests, tokens, self._tokens, unused]
        await retry_during_outage(
            "rate limit", lambda: scripts.call(self._bus.redis, "rate_note", [self._key], args)
        )
