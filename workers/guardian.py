"""Runs between a worker and an untrusted program, whose process tree dies with the worker.

    guardian.py FD COMMAND…

The worker has the other end of FD, a pipe. When that end closes, even because the worker was killed
with -9, every descendant of COMMAND is killed. Process groups can't do that (`npx` and shells
create their own groups), nor can a signal at the parent's death (it reaches only direct children).
On Linux this process adopts all orphaned descendants, so that it finds all of them; elsewhere it
kills COMMAND's process group. SIGTERM is passed on, and when COMMAND exits, its remaining
descendants are killed.

It is run as a file with `-I -S`, so it must not import packages or code from a user's folder.
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
    wake_read, wake_write = os.pipe()
    for end in (wake_read, wake_write):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, _ignore_signal)
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        _exec_command(command, watched, parent, libc)
    # The pipes belong to the program: their end must be visible while this process lives.
    devnull = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(devnull, descriptor)
    return _guard(child, watched, wake_read)


def _ignore_signal(_number: int, _frame: FrameType | None) -> None:
    """Do nothing: the signal number arrives through the pipe of `set_wakeup_fd`."""


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
        # The defaults that subprocess restores as well, since Python changes them.
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        os.execvp(command[0], command)
    except OSError as error:
        message = f"{type(error).__name__}: {error}: {command[0]!r}\n"
        os.write(2, message.encode(errors="replace"))
    finally:
        os._exit(_NOT_STARTED)


def _guard(child: int, watched: int, wake_read: int) -> int:
    while True:
        ready, _, _ = select.select([watched, wake_read], [], [])
        if watched in ready:
            _end_all(child)
            return 128 + signal.SIGKILL
        if signal.SIGTERM in os.read(wake_read, 1_024):
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
    """Kill all children repeatedly: a dead child's children become children of this process."""
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
                # The name in parentheses may contain anything; state and parent follow it.
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
