"""The process that `tests.forked` starts: it has imported the project's programs, and each
requested start becomes a copy of it.

`clone` with CLONE_PARENT makes that copy a child of the requesting process, as `fork` and `exec`
would: that process waits for it, and it dies with its parent as usual. A copy takes over everything
that a process has from its start: arguments, environment, folder, files, signals, limits. It only
skips the imports.
"""

from __future__ import annotations

import ctypes
import fcntl
import gc
import importlib
import json
import os
import platform
import resource
import runpy
import signal
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.forked import ROOT, Line, start_by

CLONE = {"x86_64": 56, "aarch64": 220}
"""Numbers of the system call by machine."""
_CLONE_PARENT = 0x8000
_PR_SET_PDEATHSIG = 1
_PR_SET_MM, _ARG_END, _ENV_END = 35, 9, 11
_FIRST_FREE = 200
"""Numbers from here on are free for the server's own descriptors."""

_libc = ctypes.PyDLL(None)  # unlike CDLL it keeps Python's lock, for which a copy would wait
_libc.syscall.restype = ctypes.c_long


def serve(number: int, modules: Sequence[str]) -> None:
    """Serve requests until the socket with this number is closed. Only the copies return; they run
    the requested program."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for name in modules:
        with suppress(ModuleNotFoundError):  # of an extra that may be missing
            importlib.import_module(name)
    sys.path.remove(ROOT)
    gc.collect()
    # Imported objects are never garbage in a copy, and scanning them would copy their memory.
    gc.freeze()
    line: Line = socket.socket(fileno=number)
    while True:
        message, descriptors, _, _ = socket.recv_fds(line, 1 << 20, 64)
        if not message:
            os._exit(0)
        request: dict[str, Any] = json.loads(message)
        pid = _clone_as_sibling()
        if pid:
            for descriptor in descriptors:
                os.close(descriptor)
            line.send(str(pid).encode())
            continue
        line.close()
        if request["starts_others"]:
            mine, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            if os.fork() == 0:
                for descriptor in (*descriptors, mine.detach()):
                    os.close(descriptor)
                line = its
                continue
            its.close()
            start_by(mine)
        break
    _become(request, descriptors)
    _run(request)


def _clone_as_sibling() -> int:
    """Fork like `os.fork`, but make the new process a child of this one's parent."""
    ctypes.pythonapi.PyOS_BeforeFork()
    flags = ctypes.c_long(_CLONE_PARENT | signal.SIGCHLD)
    number = ctypes.c_long(CLONE[platform.machine()])
    nothing = ctypes.c_long(0)
    pid: int = _libc.syscall(number, flags, nothing, nothing, nothing, nothing)
    if pid == 0:
        ctypes.pythonapi.PyOS_AfterFork_Child()
    else:
        ctypes.pythonapi.PyOS_AfterFork_Parent()
    return pid


def _become(request: dict[str, Any], descriptors: Sequence[int]) -> None:
    """Take over the state that a newly started process would have."""
    if request["new_session"]:
        os.setsid()
    _place(descriptors, request["targets"])
    os.umask(request["umask"])
    for name, limits in request["limits"]:
        if resource.getrlimit(name) != tuple(limits):
            resource.setrlimit(name, tuple(limits))
    os.chdir(request["folder"])
    environment: dict[str, str] = request["environment"]
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    _show([sys.executable, *request["words"]], environment)
    _take_signals(request["ignored"], request["blocked"])
    if (number := request["dies_by"]) is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
        if os.getppid() != request["parent"]:
            os._exit(1)
    places = environment.get("PYTHONPATH", "").split(os.pathsep)
    here = [request["folder"]] if request["how"] != "main" and request["words"][0] != "-P" else []
    sys.path[:] = [*here, *(place for place in places if place), *sys.path]
    sys.stdout.reconfigure(line_buffering=os.isatty(1))  # type: ignore[union-attr]


def _place(descriptors: Sequence[int], targets: Sequence[int]) -> None:
    """Move descriptors to their numbers in the new process."""
    above = max(_FIRST_FREE, *targets) + 1
    moved = [fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, above) for number in descriptors]
    for number in descriptors:
        os.close(number)
    for number, target in zip(moved, targets, strict=True):
        os.dup2(number, target)
        os.close(number)


def _take_signals(ignored: Sequence[int], blocked: Sequence[int]) -> None:
    """Restore the signal dispositions of a freshly started interpreter."""
    for number in sorted(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}):
        if number in ignored:
            wanted: Any = signal.SIG_IGN
        elif number == signal.SIGINT:
            wanted = signal.default_int_handler
        elif number in (signal.SIGPIPE, signal.SIGXFSZ):
            wanted = signal.SIG_IGN
        else:
            wanted = signal.SIG_DFL
        if signal.getsignal(number) != wanted:
            signal.signal(number, wanted)
    signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def _show(words: Sequence[str], environment: dict[str, str]) -> None:
    """Make `ps` and /proc report this process like a freshly started one: they read the place where
    the kernel stored the arguments and environment of the copied process."""
    # Fields from 48 on; the second one, in brackets, may contain spaces.
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    starts = [int(field) for field in fields[45:49]]
    entries = [f"{name}={value}" for name, value in environment.items()]
    for begin, end, listed, which in (
        (*starts[:2], words, _ARG_END), (*starts[2:], entries, _ENV_END),
    ):  # fmt: skip
        block = b"".join(os.fsencode(word) + b"\0" for word in listed)[: end - begin]
        ctypes.memmove(begin, block.ljust(end - begin, b"\0"), end - begin)
        # The kernel refuses without privileges; then zeros follow.
        _libc.prctl(*map(ctypes.c_ulong, (_PR_SET_MM, which, begin + len(block), 0, 0)))


def _run(request: dict[str, Any]) -> None:
    """Run its arguments like the interpreter."""
    arguments: list[str] = request["arguments"]
    match request["how"]:
        case "main":
            sys.argv = arguments
            sys.exit(importlib.import_module(arguments[0]).main())
        case "code":
            sys.argv = ["-c", *arguments[1:]]
            exec(compile(arguments[0], "<string>", "exec"), sys.modules["__main__"].__dict__)
        case _:
            # The module runs once more, under the name from the command line.
            for name in (arguments[0], f"{arguments[0]}.__main__"):
                if not hasattr(sys.modules.get(name), "__path__"):
                    sys.modules.pop(name, None)
            sys.argv = ["-m", *arguments[1:]]
            runpy._run_module_as_main(arguments[0])  # type: ignore[attr-defined]
