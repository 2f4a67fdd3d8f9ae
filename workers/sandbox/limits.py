"""What a program may use."""

from __future__ import annotations

import os

from pydantic import BaseModel, ConfigDict, Field

KIB, MIB = 2**10, 2**20
WAITING = 3.0
"""How much longer than its time a program may take by the clock. The time itself is in seconds of
CPU: a verdict must not depend on what else the machine does."""


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Limits(BaseModel):
    """Bounds of one program. A program is one process: it may start threads, and no process."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    wall_seconds: float = Field(default=WAITING * 10, gt=0, le=3600)
    """Wall time of a program from its start to its end."""
    cpu_seconds: int = Field(default=10, ge=1, le=3600)
    """CPU time of all threads together, in whole seconds as the kernel counts."""
    memory_bytes: int = Field(default=512 * MIB, ge=64 * MIB, le=64 * 2**30)
    """Address space in bytes, the interpreter's own 20 MiB included. The kernel's page tables come
    on top: a program that scatters its pages can make it twice as much."""
    threads: int = Field(default=16, ge=1, le=1024)
    """Threads in addition to the main one."""
    open_files: int = Field(default=64, ge=16, le=4096)
    """Held open at once, sockets and pipes included, each of which can hold about 0.3 MiB in the
    kernel alongside `memory_bytes`."""
    disk_bytes: int = Field(default=0, ge=0, le=2**30)
    """Size of `/tmp`, the working directory; 0 leaves no place to write to. It is memory, and an
    empty file costs about a KiB that is not counted, so give it only to programs that need it."""
    output_bytes: int = Field(default=4 * MIB, ge=1, le=256 * MIB)
    """Bytes of standard output, and again of standard error."""


class SandboxSettings(BaseModel):
    """How sandboxes are had on this machine."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    limits: Limits = Limits()
    """Limits of a program that brings no limits of its own."""
    parallel: int = Field(default_factory=cores, ge=1, le=1024)
    """Programs that run at once."""
    ready: int = Field(default_factory=lambda: 2 * cores(), ge=1, le=1024)
    """Interpreters that wait for a program, each about 15 MB."""
    time_factor: float = Field(default=1.0, gt=0, le=100)
    """Stretches the time limits that problems bring along: most are meant for C++."""
    unsafe_exec: bool = False
    """Run programs without bubblewrap: they can read your files, use the network and start
    processes. Limits of time, memory and output still hold. For where there is nothing to lose."""
