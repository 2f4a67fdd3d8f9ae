"""Resource limits of a sandboxed program."""

from __future__ import annotations

import os

from pydantic import BaseModel, ConfigDict, Field

KIB, MIB = 2**10, 2**20
WAITING = 3.0
"""Ratio of a program's wall-clock limit to its time limit. The time limit itself is in CPU seconds,
so that a verdict does not depend on the machine's other load."""


def cores() -> int:
    """Number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Limits(BaseModel):
    """Limits of one program. A program is one process: it may start threads but no processes."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    wall_seconds: float = Field(default=WAITING * 10, gt=0, le=3600)
    """Wall time of a program from its start to its end."""
    cpu_seconds: int = Field(default=10, ge=1, le=3600)
    """CPU time of all threads together, in whole seconds as the kernel counts it."""
    memory_bytes: int = Field(default=512 * MIB, ge=64 * MIB, le=64 * 2**30)
    """Address space in bytes, including the interpreter's own 20 MiB. The kernel's page tables come
    on top: a program that scatters its pages can double the total."""
    threads: int = Field(default=16, ge=1, le=1024)
    """Threads in addition to the main one."""
    open_files: int = Field(default=64, ge=16, le=4096)
    """Maximum number of open files, including sockets and pipes. Each can use about 0.3 MiB of
    kernel memory in addition to `memory_bytes`."""
    disk_bytes: int = Field(default=0, ge=0, le=2**30)
    """Size of `/tmp`, the working directory; 0 leaves nowhere to write. It is in memory, and an
    empty file costs about 1 KiB that is not counted, so set it only for programs that need it."""
    output_bytes: int = Field(default=4 * MIB, ge=1, le=256 * MIB)
    """Maximum bytes of standard output, and again of standard error."""


class SandboxSettings(BaseModel):
    """How this machine runs its sandboxes."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    limits: Limits = Limits()
    """Limits of a program that has no limits of its own."""
    parallel: int = Field(default_factory=cores, ge=1, le=1024)
    """Programs that run at once."""
    ready: int = Field(default_factory=lambda: 2 * cores(), ge=1, le=1024)
    """Number of interpreters kept waiting for a program, each about 15 MB."""
    time_factor: float = Field(default=1.0, gt=0, le=100)
    """Factor applied to the problems' own time limits, most of which are meant for C++."""
    unsafe_exec: bool = False
    """Run programs without bubblewrap: they can read your files, use the network and start
    processes. Limits on time, memory and output still hold. Only for machines where there is
    nothing to lose."""
