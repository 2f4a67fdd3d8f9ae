"""A process between a worker and a program of strangers, whose whole family ends with the worker.

    guardian.py FD COMMAND…

The worker holds the other end of FD, a pipe: when that end closes, be it that the worker was
killed with -9, every descendant of COMMAND is killed. Process groups can't do that (`npx` and
shells start groups of their own), nor can a signal at the parent's death (it reaches children, and
not theirs). On Linux this process adopts whatever of the family loses its parent, so that it finds
all of it; elsewhere it ends the group of COMMAND. SIGTERM is handed on, and COMMAND's own end ends
what it left behind.

It is run as a file with `-I -S`: nothing of a user's folder and no package may be imported here.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
from collections.abc import Callable, Iterator
from types import FrameType

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_NOT_STARTED = 127
_LINUX = os.uname().sysname == "Linux"


def main() -> int:
    watched, command = int(sys.argv[1]), sys.argv[2:]
    libc = ctypes.CDLL(None) if _LINUX else None
    if libc is not None:
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    woken, wakes = os.pipe()
    for end in (woken, wakes):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, _ignore_signal)
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        _exec_command(command, watched, parent, libc)
    # The pipes of the program are its own: their ends must be seen while this process lives.
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nothing, standard)
    return _guard(child, watched, woken)


def _ignore_signal(_number: int, _frame: FrameType | None) -> None:
    """Do nothing: the number comes through the pipe of `set_wakeup_fd`."""


def _exec_command(command: list[str], watched: int, parent: int, libc: ctypes.CDLL | None) -> None:
    try:
        os.close(watched)
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        os.setsid()
        if libc is not None:
            libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
            if os.getppid() != parent:
                os._exit(_NOT_STARTED)
        # As subprocess has them, whatever Python has set for itself.
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        os.execvp(command[0], command)
    except OSError as error:
        message = f"{type(error).__name__}: {error}: {command[0]!r}\n"
        os.write(2, message.encode(errors="replace"))
    finally:
        os._exit(_NOT_STARTED)


def _guard(child: int, watched: int, woken: int) -> int:
    while True:
        ready, _, _ = select.select([watched, woken], [], [])
        if watched in ready:
            _end_all(child)
            return 128 + signal.SIGKILL
        if signal.SIGTERM in os.read(woken, 1_024):
            _signal(os.killpg, child, signal.SIGTERM)
        for pid, status in _reap_children():
            if pid == child:
                _end_all(child)
                code = os.waitstatus_to_exitcode(status)
                return code if code >= 0 else 128 - code


def _reap_children() -> Iterator[tuple[int, int]]:
    try:
        while (exit_info := os.waitpid(-1, os.WNOHANG))[0]:
            yield exit_info
    except ChildProcessError:
        return


def _end_all(child: int) -> None:
    """Kill all children again and again: those of one that dies become children of this process."""
    _signal(os.killpg, child, signal.SIGKILL)
    while True:
        killed = [_signal(os.kill, pid, signal.SIGKILL) for pid in _children()]
        if _LINUX and not any(killed):
            return  # none is left, or none that this process may kill
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def _children() -> list[int]:
    if not _LINUX:
        return []
    parent_pid, children = os.getpid(), list[int]()
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                # The name in brackets may hold anything; after it: state, parent.
                after = file.read().rpartition(b")")[2].split()
        except OSError:
            continue
        if int(after[1]) == parent_pid:
            children.append(int(name))
    return children


def _signal(send: Callable[[int, int], None], pid: int, number: int) -> bool:
    try:
        send(pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
