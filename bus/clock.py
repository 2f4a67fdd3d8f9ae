"""The deployment's time: the Redis server's clock, as every process of the deployment counts it.

Deadlines, due times, beats and ages are compared between machines whose clocks differ, so none of
them is taken from a machine's own wall clock. A process reads the server's `TIME` when it joins and
counts from there with a clock that `settimeofday` does not move; it measures again every
`MEASURE_SECONDS`.

*The server's own clock* may jump, too: after a restart on another machine, or a late NTP
correction. Then the processes agree on a shift, which is stored with the data. Every script adds it
to `TIME`, so the deployment's time continues and no deadline comes hours early or late. Who is
wrong if a process and the server disagree? Every process that agrees with the server records the
server's time (`last`). If that record is recent, the server's clock has run evenly, and the
disagreeing process is wrong (its machine was suspended); otherwise the server has jumped. Server
time never runs backwards: a time before `last` is a jump as well.

Scripts that act on time (`sweep`, `end`) also compare it with the caller's count, and decide
nothing if the two disagree, so a jump does no harm before it is discovered.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import structlog
from redis.asyncio import Redis
from redis.exceptions import ResponseError

from loopline.bus import scripts
from loopline.bus.connection import is_outage

if TYPE_CHECKING:
    from loopline.bus.keys import Keys

log = structlog.get_logger("loopline.bus.clock")

MEASURE_SECONDS = 2.0
"""Seconds between two measurements."""
AGREE_SECONDS = 2.0
"""A process and the server agree if they differ by no more than this plus half a round trip."""
RECENT_SECONDS = 10.0
"""Maximum age in seconds of a record of the server's time that proves that its clock ran evenly."""
SKEW_SECONDS = 2.0
"""Largest error of a machine's wall clock without a warning, in seconds."""
_TRIES = 5
_GOOD_ROUND_TRIP = 0.25

_STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""A clock that continues while the machine sleeps, if the kernel has one."""


def _monotonic_seconds() -> float:
    return time.clock_gettime(_STEADY)


class Clock:
    """The deployment's time in one process. Before the first measurement, it is the machine's wall
    clock."""

    def __init__(self) -> None:
        self.measured = False
        self.uncertainty = 0.0
        """Half a round trip, in seconds, of the measurement that the clock counts from."""
        self.jumps = 0
        """Number of noticed jumps of the server's clock, whichever process noticed them."""
        self._time = 0.0
        self._at = 0.0
        self._shift: int | None = None
        self._logged_skew = 0.0

    def now(self) -> float:
        """Unix seconds by the server's clock."""
        return self._time + (_monotonic_seconds() - self._at) if self.measured else time.time()

    def left(self, deadline: float) -> float:
        """Seconds until a deadline in the deployment's time; negative after it."""
        return deadline - self.now()

    def now_ms(self) -> int:
        return int(self.now() * 1000)

    @property
    def skew(self) -> float:
        """Seconds that this machine's wall clock is ahead of the deployment's time."""
        return time.time() - self.now()

    async def measure(self, redis: Redis, keys: Keys) -> None:
        """Compare with the server, and agree on the time. Raises what Redis raises."""
        for _ in range(_TRIES):
            if await self._try_measure(redis, keys):
                break
        self._log_skew()

    async def _try_measure(self, redis: Redis, keys: Keys) -> bool:
        """Measure once. False if the measurement must be repeated: the answer was slow, or another
        process was quicker to agree on a shift."""
        sent = _monotonic_seconds()
        async with redis.pipeline(transaction=False) as pipe:
            pipe.time()
            pipe.hmget(keys.clock, ["shift", "last"])
            (seconds, micro), (shift, last) = await pipe.execute()
        back = _monotonic_seconds()
        half, middle = (back - sent) / 2, (back + sent) / 2
        server, offset = seconds + micro / 1e6, int(shift or 0)
        noted = int(last) / 1000 if last is not None else None
        server_time = server + offset / 1000
        local_time = self._time + (middle - self._at) if self.measured else server_time
        behind = noted is not None and server < noted - AGREE_SECONDS
        if not self.measured and noted is not None and behind:
            local_time = noted + offset / 1000
        apart = server_time - local_time
        evenly = noted is not None and not behind and server - noted <= RECENT_SECONDS
        jumped = abs(apart) > AGREE_SECONDS + half and not evenly
        if jumped and half > _GOOD_ROUND_TRIP:
            return False
        wanted = offset - round(apart * 1000) if jumped else offset
        args: list[scripts.Value] = [offset, wanted, int(server * 1000)]
        try:
            if await scripts.call(redis, "clock", [keys.clock], args) == 0:
                return False
            await self._publish_shift(redis, keys, wanted)
        except ResponseError as error:
            # Full, a replica, or no write permission: it can still be read.
            if not is_outage(error):
                raise
            if jumped and self.measured:
                return True  # Keep counting as before, until a shift can be agreed on.
        if jumped:
            log.warning(
                "the server's clock jumped",
                seconds=round(apart, 1),
                effect="none: the deployment's time continues",
            )
            server_time = local_time
        elif self.measured and abs(apart) > AGREE_SECONDS + half:
            log.warning("this process was behind the server's clock", seconds=round(apart, 1))
        self._time, self._at = server_time, middle
        self.uncertainty, self.measured = half, True
        return True

    async def _publish_shift(self, redis: Redis, keys: Keys, shift: int) -> None:
        """Give every shard's scripts the shift: they may read only keys of their own hash tag."""
        if self._shift is not None and shift != self._shift:
            self.jumps += 1
            self._shift = shift
            await self.tell(redis, keys)
        self._shift = shift

    async def tell(self, redis: Redis, keys: Keys) -> None:
        """Give the shards' scripts the shift."""
        for shard in keys.all_shards():
            await scripts.call(redis, "shard", [shard.deployment], ["shift", self._shift or 0])

    async def keep(self, redis: Redis, keys: Keys) -> None:
        """Restore the shift for the shards' scripts after a flush or a restart that lost the
        data."""
        if self._shift:
            await self.tell(redis, keys)

    def _log_skew(self) -> None:
        skew = self.skew
        if abs(skew - self._logged_skew) <= SKEW_SECONDS:
            return
        self._logged_skew = skew if abs(skew) > SKEW_SECONDS else 0.0
        if self._logged_skew:
            log.warning(
                "this machine's clock is wrong",
                seconds_ahead=round(skew, 1),
                effect="none on runs, which use the server's clock; log lines have the wrong time",
                remedy="set it with NTP",
            )
        else:
            log.info("this machine's clock is right again", seconds_ahead=round(skew, 3))
