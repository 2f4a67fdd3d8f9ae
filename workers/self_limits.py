"""Limits that our processes set for themselves: on resources before they read untrusted input, and
on which processes may inspect them.

By default any process of a user may read the memory and the environment of the user's other
processes (ptrace, /proc/PID/mem, /proc/PID/environ), and a crash dumps both into a file.
"""

from __future__ import annotations

import ctypes
import math
import platform
import resource

_PR_SET_DUMPABLE = 4


def limit_self(*, memory_bytes: int, cpu_seconds: float) -> None:
    """Limit this child process before it reads any input: to this much memory and CPU time, with no
    files written and no core dumped. A lower limit of the system stays in force."""
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
    """Make this process undumpable until it executes another program, which starts with the
    default. Does nothing outside Linux."""
    if platform.system() == "Linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
