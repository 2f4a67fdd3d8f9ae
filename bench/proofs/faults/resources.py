"""Means of the attacks: a disk that can be full, clocks that can be wrong, a remote machine.

The disk and the machine need root; without it, the reason is returned instead. Only addresses,
mounts and namespaces that were created here are touched, and they are removed at the end.
"""

from __future__ import annotations

import asyncio
import contextlib
import mmap
import os
import secrets
import struct
import subprocess
from collections.abc import Generator, Sequence
from pathlib import Path

DISK_BYTES = 1 << 30
"""Most bytes of memory that the disk may use: more than 2,000 runs append, including rewrites."""
COMMAND_SECONDS = 20.0
_TRIES = 10


class SmallDisk:
    """A file system in memory, mounted on a folder. To fill it, it is shrunk to its content, which
    needs no memory."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def fill(self) -> None:
        """Leave no room for more than the present content."""
        for _ in range(_TRIES):  # a process may write meanwhile
            state = os.statvfs(self._folder)
            used = (state.f_blocks - state.f_bfree) * state.f_frsize
            if not self._resize(used + state.f_frsize):
                return

    def free(self) -> None:
        """Restore its full size."""
        why = self._resize(DISK_BYTES)
        if why:
            raise OSError(why)

    def _resize(self, size: int) -> str:
        return _run_command("mount", "-o", f"remount,size={size}", str(self._folder))


@contextlib.contextmanager
def small_disk(folder: Path) -> Generator[SmallDisk | str]:
    """Yield a disk on a new folder, or the reason why there is none."""
    folder.mkdir(parents=True)
    why = _run_command(
        "mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "bench-faults", str(folder)
    )
    if why:
        yield f"a separate disk can't be mounted: {why}"
        return
    try:
        yield SmallDisk(folder)
    finally:
        _run_command("umount", "--lazy", str(folder))


class Clocks:
    """A clock's error for each slot of a fleet; `loopline.bench.proofs.faults.worker` reads it each
    time that it reads the clock."""

    def __init__(self, folder: Path, slots: int) -> None:
        self._files: list[mmap.mmap] = []
        self.paths: list[Path] = []
        for index in range(slots):
            path = folder / f"clock-{index}"
            path.write_bytes(bytes(8))
            with path.open("r+b") as file:
                self._files.append(mmap.mmap(file.fileno(), 8))
            self.paths.append(path)

    def set(self, slot: int, seconds: float) -> None:
        """Set the clock of the worker in this slot ahead by `seconds`."""
        self._files[slot][:] = struct.pack("d", seconds)


class FarMachine:
    """A network namespace with one link to this machine."""

    def __init__(self, name: str, link: str, address: str) -> None:
        self.address = address
        """Address of this end, where the remote processes reach us."""
        self.prefix = ("ip", "netns", "exec", name)
        """Prefix of a command that runs on the remote machine."""
        self._link = link

    async def down(self) -> None:
        await asyncio.to_thread(_require, "ip", "link", "set", self._link, "down")

    async def up(self) -> None:
        await asyncio.to_thread(_require, "ip", "link", "set", self._link, "up")


@contextlib.contextmanager
def far_machine() -> Generator[FarMachine | str]:
    """Yield a separate namespace, or the reason why there is none."""
    mark = secrets.token_hex(3)
    name, here, there = f"bench-{mark}", f"bf{mark}a", f"bf{mark}b"
    # A /30 from the range for benchmarks between networks (RFC 2544), which no network routes.
    block = secrets.randbelow(1 << 14) * 4
    near_address, far_address = (f"198.18.{block >> 8}.{(block & 255) + last}" for last in (1, 2))
    commands: Sequence[tuple[str, ...]] = (
        ("ip", "link", "add", here, "type", "veth", "peer", "name", there),
        ("ip", "link", "set", there, "netns", name),
        ("ip", "address", "add", f"{near_address}/30", "dev", here),
        ("ip", "link", "set", here, "up"),
        ("ip", "-n", name, "address", "add", f"{far_address}/30", "dev", there),
        ("ip", "-n", name, "link", "set", there, "up"),
        ("ip", "-n", name, "link", "set", "lo", "up"),
    )
    why = _run_command("ip", "netns", "add", name)
    if why:
        yield f"a network namespace can't be created: {why}"
        return
    try:
        for command in commands:
            why = why or _run_command(*command)
        yield (
            f"a network namespace can't be linked: {why}"
            if why
            else FarMachine(name, here, near_address)
        )
    finally:
        _run_command("ip", "link", "delete", here)
        _run_command("ip", "netns", "delete", name)


def _run_command(*command: str) -> str:
    """Run a command and return why it failed; empty if it did not."""
    try:
        result = subprocess.run(
            command, capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if result.returncode == 0:
        return ""
    lines = (result.stderr or result.stdout).strip().splitlines()
    return f"{' '.join(command[:3])}: {lines[-1] if lines else f'code {result.returncode}'}"


def _require(*command: str) -> None:
    why = _run_command(*command)
    if why:
        raise OSError(why)
