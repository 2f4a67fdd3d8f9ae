"""A process that others of the same user can't look into.

By default any process of a user may read the memory and the environment of every other (ptrace,
/proc/PID/mem, /proc/PID/environ), and a crash writes both into a file.
"""

from __future__ import annotations

import ctypes
import platform

_PR_SET_DUMPABLE = 4


def become_undumpable() -> None:
    """For this process, until it runs another program; those have what they are started with. Does
    nothing where there is no such switch."""
    if platform.system() == "Linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
