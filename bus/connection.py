"""Connections to Redis, and what to do during an outage.

Two pools: one for commands, one for blocking reads, so a reader that blocks for two seconds never
delays a commit. When all connections are in use, both pools wait instead of opening more sockets.
The blocking pool's socket timeout exceeds the block time, so a dead server is noticed and a quiet
one is not mistaken for it.
"""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

import redis
import structlog
from redis.asyncio import Redis
from redis.asyncio.retry import Retry as RetryPolicy
from redis.backoff import NoBackoff
from redis.exceptions import (
    AuthenticationError,
    DataError,
    NoPermissionError,
    RedisError,
    ResponseError,
)

from loopline.bus import connection_pool, health
from loopline.bus.errors import BusUnavailable
from loopline.bus.remedies import is_refusal, remedy
from loopline.bus.script_wire import ScriptingRedis
from loopline.bus.settings import BusSettings, tls_options

log = structlog.get_logger("loopline.bus.connection")

T = TypeVar("T")

OUTAGE = (RedisError,)
"""Any Redis error in a worker's loop (a closed socket, LOADING, MISCONF, READONLY, OOM, NOREPLICAS,
NOGROUP) is an outage to wait out, not a reason to exit. Connections raise only these errors: see
`loopline.bus.connection_pool`."""

_SCRIPT_FAULT = re.compile(
    r"^(?![A-Z]+ |WRONGTYPE|The user executing).*@user_script|^WRONGTYPE", re.DOTALL
)
"""Matches the error of a faulty script. An outage within a script keeps its error code (MISCONF,
NOREPLICAS, NOGROUP…) or has its own exception class. A lost permission of an ACL user, which can be
restored, has neither on Redis 7.0."""


def is_outage(error: BaseException) -> bool:
    """Whether waiting can help. A value that redis-py can't encode, or a script that fails on its
    arguments, fails every time: repeating it would block everything after it."""
    if isinstance(error, DataError):
        return False
    if type(error) is ResponseError:
        return _SCRIPT_FAULT.match(str(error)) is None
    return isinstance(error, OUTAGE)


COMMAND_TIMEOUT = 10.0
MAX_PAUSE = 5.0


class Connections:
    """The pools of one process. Values come back as bytes."""

    def __init__(self, settings: BusSettings) -> None:
        self.settings = settings
        if not settings.checks_host:
            log.warning("tls without host verification", redis=settings.safe_url)
        node = connection_pool.Node()
        self.commands: Redis = ScriptingRedis.from_pool(
            connection_pool.pool(
                settings.redis_url,
                max_connections=32,
                wait_seconds=COMMAND_TIMEOUT,
                node=node,
                socket_timeout=COMMAND_TIMEOUT,
                socket_connect_timeout=5.0,
                retry=RetryPolicy(NoBackoff(), 0),
            )
        )
        self.blocking = Redis.from_pool(
            connection_pool.pool(
                settings.redis_url,
                max_connections=256,
                wait_seconds=COMMAND_TIMEOUT,
                node=node,
                socket_timeout=settings.block_seconds + 5.0,
                socket_connect_timeout=5.0,
                retry=RetryPolicy(NoBackoff(), 0),
            )
        )

    async def check(self, *, wait_seconds: float = 0.0) -> None:
        """Raises `BusUnavailable` with the reason and the remedy: at once if the server refuses the
        password, a command or a key, otherwise after `wait_seconds`, because a server that starts
        or loads its data answers later."""
        attempt, until = 0, time.monotonic() + wait_seconds
        while True:
            try:
                await self.commands.ping()  # pyright: ignore[reportGeneralTypeIssues]
                await health.require_usable(self.commands, self.settings)
                return
            except RedisError as error:
                # When connecting, redis-py wraps the server's refusal in a ConnectionError.
                if isinstance(error, AuthenticationError) or isinstance(
                    error.__cause__, AuthenticationError
                ):
                    raise BusUnavailable(
                        f"Redis at {self.settings.safe_url} refused the password ({error}): put "
                        "the right one into redis_url, as redis://:PASSWORD@host:port/0"
                    ) from error
                attempt += 1
                pause = pause_before(attempt)
                if time.monotonic() + pause > until or isinstance(error, NoPermissionError):
                    raise await self._unavailable_error(error) from error
                if attempt == 1:
                    log.warning("redis away", during="start", error=str(error))
                await asyncio.sleep(pause)

    async def _unavailable_error(self, error: RedisError) -> BusUnavailable:
        where = f"Redis at {self.settings.safe_url}"
        if is_refusal(error):
            return BusUnavailable(f"{where} refuses the bus ({error}): {remedy(error)}")
        if greeting := await health.greeting(self.settings.redis_url):
            return BusUnavailable(
                f"{where} refuses the bus ({greeting}): {remedy(RedisError(greeting))}"
            )
        return BusUnavailable(f"{where} does not answer ({error}): {remedy(error)}")

    async def close(self) -> None:
        await self.commands.aclose(close_connection_pool=True)
        await self.blocking.aclose(close_connection_pool=True)


def renewal_client(settings: BusSettings) -> redis.Redis:
    """A synchronous client with its own connection, for the lease keeper's thread."""
    return redis.Redis.from_url(
        settings.redis_url,
        socket_timeout=max(1.0, settings.lease_seconds / 3),
        socket_connect_timeout=max(1.0, settings.lease_seconds / 3),
        **tls_options(settings.redis_url),
    )


def pause_before(attempt: int) -> float:
    """Seconds before attempt number `attempt` (from 1): doubles from 50 ms to 5 s, full jitter."""
    return random.uniform(0.5, 1.0) * min(MAX_PAUSE, 0.05 * 2 ** min(attempt, 10))


async def retry_during_outage(
    what: str,
    operation: Callable[[], Awaitable[T]],
    *,
    give_up_after: float | None = None,
    where: str = "",
) -> T:
    """Repeat an idempotent operation until Redis answers.

    Logs failures at growing intervals, and the recovery. After `give_up_after` seconds (`None`:
    never) raises `BusUnavailable`, which names `where` (the server). An error that waiting can't
    fix is raised at once.
    """
    attempt = 0
    began = asyncio.get_running_loop().time()
    while True:
        try:
            result = await operation()
        except OUTAGE as error:
            if not is_outage(error):
                raise
            attempt += 1
            waited = asyncio.get_running_loop().time() - began
            if give_up_after is not None and waited > give_up_after:
                raise BusUnavailable(
                    f"{what}: Redis {where} refused or was unreachable for {waited:.1f} s"
                    f" ({error}): {remedy(error)}"
                ) from error
            if attempt & (attempt - 1) == 0:  # 1st, 2nd, 4th, 8th… attempt
                log.warning(
                    "redis away",
                    during=what,
                    error=str(error),
                    kind=type(error).__name__,
                    tries=attempt,
                )
            await asyncio.sleep(pause_before(attempt))
        else:
            if attempt:
                log.info("redis back", during=what, tries=attempt)
            return result
