"""Limits that our processes set themselves: on resources before they read untrusted input, and on
who may inspect them.

By default any process of a user may read the memory and the environment of every other (ptrace,
/proc/PID/mem, /proc/PID/environ), and a crash writes both into a file.
"""

from __future__ import annotations

import ctypes
import math
import platform
import resource

_PR_SET_DUMPABLE = 4


def limit_self(*, memory_bytes: int, cpu_seconds: float) -> None:
    """For the child, before it reads anything: at most so much memory and time of a CPU, no files
    written and no core dumped. Where a limit of the system's is lower, that holds."""
    for kind, wanted in (
        (resource.RLIMIT_AS, memory_bytes),
        (resource.RLIMIT_CPU, math.ceil(cpu_seconds)),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        _, hard = resource.getrlimit(kind)
        allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(kind, (allowed, allowed))


def become_undumpable() -> None:
    """For this process, until it runs another program; those have what they are started with. Does
    nothing where there is no such switch."""
    if platform.system() == "Linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
