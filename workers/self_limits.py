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
    """Limit this process, a child, before it reads anything: at most this much memory and CPU time,
    no files written and no core dumped. A lower limit of the system stays in force."""
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
    """Make this process undumpable until it runs another program, which starts with the default.
    Does nothing on systems other than Linux."""
    if platform.system() == "Linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
