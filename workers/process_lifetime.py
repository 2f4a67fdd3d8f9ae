"""Ties the life of child processes to their parent's, even if the parent is killed.

On Linux, a child receives a signal of our choice when its parent dies (`PR_SET_PDEATHSIG`). It is
set between fork and exec, and the parent is then checked once more, since it may have died in
between. On other systems `watch_parent` polls, in processes that run our own code.
"""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import threading
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1
PARENT_VARIABLE = "LOOPLINE_SUPERVISOR_PID"
_POLL_SECONDS = 1.0

_libc: ctypes.CDLL | None = (
    ctypes.CDLL(None, use_errno=True) if platform.system() == "Linux" else None
)
"""Loaded here, in the parent: nothing may be imported or allocated between fork and exec."""


def dies_with_parent(with_signal: signal.Signals) -> Callable[[], None] | None:
    """A `preexec_fn` that ties the child to this process; `None` if the system can't."""
    libc = _libc
    if libc is None:
        return None
    parent = os.getpid()
    number = int(with_signal)

    def tie() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

    return tie


def tie_to_parent(with_signal: signal.Signals) -> None:
    """End this process with its parent from now on; for a process that was forked, not started."""
    if _libc is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, int(with_signal), 0, 0, 0)


def watch_parent() -> None:
    """Start a thread that ends this process once the parent is gone, on systems whose kernel can't
    signal that."""
    expected = os.environ.get(PARENT_VARIABLE, "")
    if _libc is not None or not expected.isdigit():
        return
    parent = int(expected)
    wake = threading.Event()

    def poll() -> None:
        while os.getppid() == parent:
            wake.wait(_POLL_SECONDS)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=poll, name="parent-watch", daemon=True).start()
