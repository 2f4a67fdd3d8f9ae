"""Check whether a reachable server lets this user do everything that the bus needs.

A PING does not show this: a managed server may forbid scripts, an administrator may have renamed
commands, an ACL user may lack a command or the keys. Each would look like an endless outage. So
every command runs once when the process joins, on an unused key.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from urllib.parse import unquote, urlsplit

import structlog
from redis.asyncio import Redis
from redis.asyncio.connection import parse_url
from redis.exceptions import NoPermissionError, ResponseError

from loopline.bus import scripts
from loopline.bus.errors import BusUnavailable
from loopline.bus.keys import Keys
from loopline.bus.settings import BusSettings

log = structlog.get_logger("loopline.bus.health")

GREETING_SECONDS = 0.5
"""Seconds that a server gets to state why it refuses a connection, before we send anything."""

_FORBIDDEN_COMMAND = re.compile(r"permissions? to run|can't run this command")
_FORBIDDEN_KEY = re.compile(
    r"permissions? to access|can't access at least one|No permissions to access"
)
_UNKNOWN = re.compile(r"(?i)unknown (?:redis )?command|unknown subcommand")
_IN_CLUSTER = re.compile(r"^(?:CROSSSLOT|CLUSTERDOWN|MOVED)\b")


def commands(key: str) -> list[tuple[str | int, ...]]:
    """Every command that the bus sends or a script runs. The key holds text at that time, so
    commands for other types change nothing: permissions are checked before the type."""
    return [
        ("SET", key, "", "PX", 1000),
        ("EVAL", "return 1", 0),
        ("EVALSHA", "0" * 40, 0),
        ("MULTI",),
        ("EXEC",),
        ("TIME",),
        ("GET", key),
        ("MGET", key),
        ("EXISTS", key),
        ("PTTL", key),
        ("HDEL", key, "a"),
        ("HEXISTS", key, "a"),
        ("HGET", key, "a"),
        ("HGETALL", key),
        ("HINCRBY", key, "a", 1),
        ("HKEYS", key),
        ("HMGET", key, "a"),
        ("HSCAN", key, 0),
        ("HSET", key, "a", 1),
        ("HSETNX", key, "a", 1),
        ("LLEN", key),
        ("LPOP", key),
        ("LRANGE", key, 0, -1),
        ("LREM", key, 1, "a"),
        ("RPUSH", key, "a"),
        ("ZADD", key, 1, "a"),
        ("ZCARD", key),
        ("ZCOUNT", key, "-inf", "+inf"),
        ("ZRANGE", key, 0, -1),
        ("ZREM", key, "a"),
        ("ZREMRANGEBYSCORE", key, 0, 1),
        ("ZSCORE", key, "a"),
        ("XACK", key, "g", "1-1"),
        ("XADD", key, "NOMKSTREAM", "*", "a", "1"),
        ("XAUTOCLAIM", key, "g", "c", 1, "0-0"),
        ("XCLAIM", key, "g", "c", 1, "1-1", "JUSTID"),
        ("XDEL", key, "1-1"),
        ("XGROUP CREATE", key, "g", "0"),
        ("XGROUP DELCONSUMER", key, "g", "c"),
        ("XINFO CONSUMERS", key, "g"),
        ("XINFO GROUPS", key),
        ("XLEN", key),
        ("XPENDING", key, "g"),
        ("XRANGE", key, "-", "+"),
        ("XREAD", "COUNT", 1, "STREAMS", key, "0-0"),
        ("XREADGROUP", "GROUP", "g", "c", "COUNT", 1, "STREAMS", key, ">"),
        ("XREVRANGE", key, "+", "-"),
        ("XTRIM", key, "MINID", "0-1"),
        ("SCAN", 0, "MATCH", key, "COUNT", 1),
        ("PEXPIREAT", key, 1),
        ("PEXPIRE", key, 1000),
        ("DEL", key),
    ]


async def require_usable(redis: Redis, settings: BusSettings) -> None:
    """Raise `BusUnavailable` for a cluster node, and for commands or keys that this user may not
    use, with the ACL line that grants them. Raises redis-py's errors for an outage."""
    await _refuse_cluster(redis, settings)
    bus_keys = Keys(settings.prefix, settings.shards)
    probe_commands = commands(bus_keys.probe)
    async with redis.pipeline(transaction=False) as pipe:
        for command in probe_commands:
            pipe.execute_command(*command)
        answers: list[object] = await pipe.execute(raise_on_error=False)
    messages = {
        str(command[0]): str(answer)
        for command, answer in zip(probe_commands, answers, strict=True)
        if isinstance(answer, ResponseError)
    }
    keys = any(_FORBIDDEN_KEY.search(words) for words in messages.values())
    denied = sorted(name for name, words in messages.items() if _FORBIDDEN_COMMAND.search(words))
    unknown = sorted(name for name, words in messages.items() if _UNKNOWN.search(words))
    if not denied and not unknown:
        try:
            await scripts.call(redis, "probe", [bus_keys.shard(0).active], [])
        except NoPermissionError:
            keys = True
    if denied or keys:
        raise BusUnavailable(_forbidden_message(settings, denied, keys=keys))
    if unknown:
        raise BusUnavailable(
            f"Redis at {settings.safe_url} has no {', '.join(unknown)}, which the bus needs: use at"
            " least Redis 7.0 or Valkey 7.2, and rename no command (rename-command in its"
            " configuration)"
        )


def _forbidden_message(settings: BusSettings, denied: list[str], *, keys: bool) -> str:
    user = user_of(settings.redis_url)
    missing = [*(["its keys"] if keys else []), *denied]
    grants = [f"+{name.lower().replace(' ', '|')}" for name in denied]
    if keys:  # keys of the deployment, and those of its shards
        grants += [f"~{{{settings.prefix}}}:*", f"~{{{settings.prefix}:*"]
    return (
        f"Redis at {settings.safe_url}: the user {user!r} may not use {', '.join(missing)}, which"
        f" the bus needs: grant it with ACL SETUSER {user} {' '.join(grants)}"
    )


async def _refuse_cluster(redis: Redis, settings: BusSettings) -> None:
    # A cluster node serves only its own slots; the others would look like an outage.
    try:
        clustered = bool((await redis.info("cluster")).get("cluster_enabled"))
    except NoPermissionError:
        clustered = await _spreads_slots(redis, settings)
    except ResponseError as error:
        if not _UNKNOWN.search(str(error)):
            raise
        clustered = await _spreads_slots(redis, settings)
    if clustered:
        raise BusUnavailable(
            f"Redis at {settings.safe_url} is a node of a Redis Cluster; the bus needs a "
            "single server, or a proxy that speaks for the whole cluster"
        )


async def _spreads_slots(redis: Redis, settings: BusSettings) -> bool:
    """Whether the server refuses two keys of different hash tags in one command, as a cluster node
    does; determined without INFO."""
    probe_keys = Keys(settings.prefix, 1)
    try:
        await redis.exists(probe_keys.probe, probe_keys.shard(0).active)
    except NoPermissionError:
        return False  # the check of all commands reports it in a moment
    except ResponseError as error:
        if _IN_CLUSTER.search(str(error)):
            return True
        raise
    return False


def user_of(url: str) -> str:
    """The user named in a URL; `default` if it names none."""
    return str(parse_url(url).get("username") or "default")


async def greeting(url: str) -> str:
    """The message that a refusing server sends before it closes a new connection: too many clients,
    or protected mode. A client that writes first sees only the closed connection. Empty if the
    server sends nothing."""
    parts = urlsplit(url)
    if parts.scheme == "rediss":
        return ""
    with suppress(OSError, ValueError, TimeoutError):
        async with asyncio.timeout(GREETING_SECONDS):
            if parts.scheme == "unix":
                reader, writer = await asyncio.open_unix_connection(unquote(parts.path))
            else:
                reader, writer = await asyncio.open_connection(
                    parts.hostname or "localhost", parts.port or 6379
                )
            try:
                line = await reader.readline()
            finally:
                writer.close()
            return line.decode("utf-8", "replace").strip() if line.startswith(b"-") else ""
    return ""
