"""The first code in a sandbox: gets ready, reports it, waits for one job, limits itself, runs it.

Nothing here is a security boundary; the sandbox around it is. Whatever a job's program does to this
process (catch, patch, exit) affects only itself.

A job arrives on standard input: its length in 8 bytes, big-endian, then its content in `marshal`'s
format (from the same Python outside, which is trusted; importing `json` would cost half as much as
everything else here). If the input ends before, no job starts. A program's own standard input is a
file, whose descriptor is the second argument; other jobs read the rest of the pipe.
"""

from __future__ import annotations

import _sitebuiltins
import _thread
import builtins
import marshal
import os
import resource
import sys
import types
from typing import Any

# Many programs import these: preloaded, they do not use up a time limit. Modules that are slow to
# import and rarely needed (`random`, `re`) would slow down every program's start.
PRELOADED = (
    "bisect", "collections", "functools", "heapq", "itertools", "math", "operator", "typing",
)  # fmt: skip

READY = b"\x01"
EXIT_MEMORY = 251
"""Exit code that reports a MemoryError. A program that exits with it misreports only itself."""
_PR_SET_PDEATHSIG, _SIGKILL = 1, 9
_EXTRA_PROCESSES = 4
"""Bubblewrap's own processes, which also count for this user."""
_CHILD_STACK = 64 * 2**20
_FIRST_PROCESS_SECONDS = 5
_SIGNALS = 64
"""Pending signals and timers per program; the kernel keeps them in memory."""
_PR_SET_DUMPABLE = 4
_LEAST_STACK = 2**20


def main() -> None:
    for name in PRELOADED:
        __import__(name)
    # `site` would add these builtins, but it is not run without site packages.
    builtins.exit = _sitebuiltins.Quitter("exit", "Ctrl-D (i.e. EOF)")
    builtins.quit = _sitebuiltins.Quitter("quit", "Ctrl-D (i.e. EOF)")
    if sys.argv[1] != "unsafe":
        _bound_first_process()
    _set_identity(sys.argv[1])
    file = int(sys.argv[2]) if len(sys.argv) > 2 else None
    os.write(1, READY)
    header = _read_exactly(8)
    content = _read_exactly(int.from_bytes(header, "big")) if header else b""
    if not content:
        return
    job = marshal.loads(content)
    if file is not None:
        if job["kind"] == "program":
            os.dup2(file, 0)
            # The existing one was opened on a pipe, which is not seekable.
            errors = sys.stdin.errors
            sys.stdin = sys.__stdin__ = open(  # noqa: SIM115 - as long as the process
                0, encoding="utf-8", errors=errors, closefd=False
            )
        os.close(file)
    _set_limits(job["limits"], isolated=sys.argv[1] != "unsafe")
    try:
        if job["kind"] == "program":
            run_program(job)
        else:
            # The modules next to this file; the program's own path stays empty.
            sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
            serve = __import__(job["kind"])
            sys.path.pop(0)
            serve.serve(job)
    except MemoryError:
        _leave_without_memory()
    except Exception as error:  # noqa: BLE001 - whatever a program raises
        # Without the frames of this file.
        trace = error.__traceback__.tb_next if error.__traceback__ else None
        trace = trace.tb_next if trace else None
        sys.__excepthook__(type(error), error.with_traceback(trace), trace)
        sys.exit(1)


def run_program(job: dict[str, Any], name: str = "__main__") -> dict[str, Any]:
    """Run a job's program as a module of that name, after its preamble if it has one, and return
    its names. Preamble and program are compiled separately, so that the program's `__future__`
    imports can come first and its lines keep their numbers."""
    module = types.ModuleType(name)
    module.__file__ = "program.py"
    sys.modules[name] = module
    sys.argv = ["program.py"]
    _bound_stacks(job["limits"]["memory_bytes"] // 2)
    for source, file in ((job.get("preamble", ""), "preamble.py"), (job["source"], "program.py")):
        exec(compile(source, file, "exec", dont_inherit=True), module.__dict__)
    return module.__dict__


def _bound_first_process() -> None:
    """Limit bubblewrap's process 1, which only waits for the program's end and needs no resources.
    Even if it were made to do something else, it could not. Must be called before `_set_identity`:
    only the process's own user may limit it."""
    for which in (
        resource.RLIMIT_AS, resource.RLIMIT_DATA, resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE,
        resource.RLIMIT_NPROC, resource.RLIMIT_MEMLOCK, resource.RLIMIT_CORE,
        resource.RLIMIT_SIGPENDING, resource.RLIMIT_MSGQUEUE,
    ):  # fmt: skip
        resource.prlimit(1, which, (0, 0))
    resource.prlimit(1, resource.RLIMIT_CPU, (_FIRST_PROCESS_SECONDS, _FIRST_PROCESS_SECONDS))


def _bound_stacks(most: int) -> None:
    """Cap the stack size of new threads, since some programs ask for as much as their whole memory.
    Other judges allow that, because the stack is never fully used. A program that asks for a larger
    stack of its own keeps the one that it has. Call it before `threading` is imported."""
    set_limit = resource.setrlimit

    def setrlimit(which: int, limits: tuple[int, int]) -> None:
        if which != resource.RLIMIT_STACK:
            set_limit(which, limits)

    resource.setrlimit = setrlimit
    set_size = _thread.stack_size

    def stack_size(size: int = 0) -> int:
        return set_size(min(size, max(_LEAST_STACK, most)) if size > 0 else size)

    _thread.stack_size = stack_size
    threading = sys.modules.get("threading")
    if threading is not None:
        vars(threading)["stack_size"] = stack_size


def _set_identity(identity: str) -> None:
    if identity == "unsafe":
        import ctypes

        # Linux only; elsewhere a program can outlive a killed parent, up to its own limit.
        prctl = getattr(ctypes.CDLL(None), "prctl", None)
        if prctl is not None:
            prctl(_PR_SET_PDEATHSIG, _SIGKILL)
    elif identity != "-":
        os.setgroups([])
        os.setresgid(int(identity), int(identity), int(identity))
        os.setresuid(int(identity), int(identity), int(identity))
        # After a change of user, a process can't open its own `/proc/self/fd` or `/dev/stdin`.
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 1)


def _set_limits(limits: dict[str, int], *, isolated: bool) -> None:
    used = resource.getrusage(resource.RUSAGE_SELF)
    cpu = limits["cpu_seconds"] + round(used.ru_utime + used.ru_stime)
    # One second later the kernel kills it even if it ignores the signal.
    resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu + 1))
    _limit(resource.RLIMIT_AS, limits["memory_bytes"])
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_STACK, _CHILD_STACK)
    if isolated:
        _limit(resource.RLIMIT_SIGPENDING, _SIGNALS)
        _limit(resource.RLIMIT_MSGQUEUE, 0)
        _limit(resource.RLIMIT_MEMLOCK, 0)
        _limit(resource.RLIMIT_FSIZE, limits["disk_bytes"])
        _limit(resource.RLIMIT_NOFILE, limits["open_files"])
        # The limit counts per user: outside a sandbox, it would count the caller's other processes.
        _limit(resource.RLIMIT_NPROC, limits["threads"] + _EXTRA_PROCESSES)


def _limit(which: int, most: int) -> None:
    _, hard = resource.getrlimit(which)
    if hard != resource.RLIM_INFINITY:
        most = min(most, hard)
    resource.setrlimit(which, (most, most))


def _read_exactly(size: int) -> bytes:
    """Read exactly this many bytes; returns nothing if the input ends earlier."""
    parts: list[bytes] = []
    while size > 0:
        part = os.read(0, size)
        if not part:
            return b""
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _leave_without_memory() -> None:
    try:
        sys.stdout.flush()
    finally:
        os.write(2, b"MemoryError\n")
        os._exit(EXIT_MEMORY)


if __name__ == "__main__":
    main()
