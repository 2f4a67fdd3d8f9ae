"""Stops a supervisor and waits until it is gone."""

from __future__ import annotations

import os
import signal
import time

from loopline.runtime.config.state import RunFile, StateDirectory
from loopline.runtime.errors import UserError

_POLL_SECONDS = 0.05
_LIMIT_SECONDS = 600.0


def stop(run: RunFile, state: StateDirectory, *, now: bool = False) -> None:
    """Signal the supervisor and wait until it has released the state directory. With `now`, its
    workers abandon their work. Raises `UserError` if it still runs after ten minutes.
    """
    _signal(run.pid, signal.SIGQUIT if now else signal.SIGTERM)
    deadline = time.monotonic() + _LIMIT_SECONDS
    while _is_held_by(run, state) or _is_alive(run.pid):
        if time.monotonic() > deadline:
            raise UserError(
                f"the supervisor (pid {run.pid}) is still draining after {_LIMIT_SECONDS:g} s",
                hint="`runtime down --now` kills its workers; the work they hold resumes later.",
            )
        time.sleep(_POLL_SECONDS)


def _is_held_by(run: RunFile, state: StateDirectory) -> bool:
    current = state.running()
    return current is not None and current.pid == run.pid


def _is_alive(pid: int) -> bool:
    """Whether the process is alive; a zombie counts as gone."""
    import psutil

    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return  # It exited between our check and the signal.
