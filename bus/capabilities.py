"""Asks the server what it can do. Versions are never compared: Valkey reports a Redis version that
says nothing about its own commands."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from redis.asyncio import Redis
from redis.exceptions import ResponseError

from loopline.bus.errors import BusUnavailable

VERSION_UNKNOWN = "(version unknown: the user may not run INFO)"
DURABILITY = {
    "always": "every write is on disk before it is acknowledged",
    "everysec": "a power failure can lose the last second (two when the disk is slow); a killed"
    " server loses nothing unless the disk was that slow",
    "no": "a power failure can lose what the kernel had not written (~30 s); a killed server"
    " loses nothing",
}
"""Durability of an append-only file, by `appendfsync`. With `everysec`, Redis delays a write for up
to two seconds while a sync is in progress, although it has already answered the client: this is the
slow disk of the text."""


def append_only_durability(appendfsync: str) -> str:
    """Describe what an append-only file with this sync mode may lose."""
    if appendfsync not in DURABILITY:
        return "appendonly yes, appendfsync unknown (the server does not allow CONFIG GET)"
    return f"appendonly yes, appendfsync {appendfsync}: {DURABILITY[appendfsync]}"


@dataclass(frozen=True, slots=True)
class Server:
    """One server as it describes itself."""

    name: str
    version: str
    appendonly: bool | None
    """Whether the server uses an append-only file; None if neither INFO nor CONFIG is allowed."""
    appendfsync: str

    @property
    def durability(self) -> str:
        """Describe what a power failure may lose."""
        if self.appendonly is None:
            return "appendonly unknown (the user may run neither INFO nor CONFIG)"
        if not self.appendonly:
            return "appendonly no: a restart loses everything (turn it on)"
        return append_only_durability(self.appendfsync)


async def probe(redis: Redis) -> Server:
    """Ask the server for its capabilities. Raises `BusUnavailable` if it evicts keys. A user who
    may not call INFO or CONFIG can still use the bus; those answers are then unknown."""
    info: dict[str, object] = {}
    with suppress(ResponseError):
        info = await redis.info()
    config: dict[str, str] = {}
    for name in ("appendonly", "appendfsync", "maxmemory-policy"):
        try:
            reply = await redis.config_get(name)
        except ResponseError:  # managed servers forbid CONFIG: then it stays unknown
            reply = {}
        config |= {str(key): str(value) for key, value in _decode_info(reply).items()}
    policy = config.get("maxmemory-policy", "unknown")
    if policy.startswith(("allkeys", "volatile")):  # every key of the bus has a time to live
        raise BusUnavailable(
            f"maxmemory-policy is {policy}: under memory pressure this server deletes accepted "
            "work. Set it to noeviction"
        )
    valkey = "valkey_version" in info
    return Server(
        name="Valkey" if valkey else "Redis",
        version=str(info.get("valkey_version") or info.get("redis_version") or VERSION_UNKNOWN),
        appendonly=(
            config["appendonly"] == "yes"
            if "appendonly" in config
            else None
            if "aof_enabled" not in info
            else info["aof_enabled"] == 1
        ),
        appendfsync=config.get("appendfsync", "unknown"),
    )


def _decode_info(reply: dict[bytes | str, bytes | str]) -> dict[str, str]:
    return {
        (key.decode() if isinstance(key, bytes) else key): (
            value.decode() if isinstance(value, bytes) else value
        )
        for key, value in reply.items()
    }
