"""The first thing in a sandbox: gets ready, says so, waits for one job, bounds itself, does it.

Nothing here protects anybody: the wall is outside. What a job's program does to this process
(catch, patch, exit) it does to itself.

A job comes over standard input: its length in 8 bytes, big-endian, then as much in `marshal`'s
form (from the same Python outside, which is trusted; to import `json` would cost half as much as
everything else here). It never starts if the input ends before. A program's own standard input is
a file, of which the descriptor is the second argument; for other jobs what follows is theirs.
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

# Many programs import these: here they cost nobody's time limit. What is slow to import and seldom
# wanted (`random`, `re`) would cost each program's start.
PRELOADED = (
    "bisect", "collections", "functools", "heapq", "itertools", "math", "operator", "typing",
)  # fmt: skip

READY = b"\x01"
EXIT_MEMORY = 251
"""How a MemoryError is told. A program that exits so itself only says it of itself."""
_PR_SET_PDEATHSIG, _SIGKILL = 1, 9
_EXTRA_PROCESSES = 4
"""Bubblewrap's own count as this user's too."""
_CHILD_STACK = 64 * 2**20
_FIRST_PROCESS_SECONDS = 5
_SIGNALS = 64
"""Signals and timers that wait for a program; the kernel keeps them."""
_PR_SET_DUMPABLE = 4
_LEAST_STACK = 2**20


def main() -> None:
    for name in PRELOADED:
        __import__(name)
    # What `site` adds to the builtins: without site packages it is not run.
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
            # The one that there is has found a pipe, in which nobody can seek.
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
            # Alongside this file; the program's own path stays empty.
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
    its names. Preamble and program are compiled separately: what a program takes from `__future__`
    must be its first statement, and its lines keep their numbers."""
    module = types.ModuleType(name)
    sys.modules[name] = module
    sys.argv = ["program.py"]
    _bound_stacks(job["limits"]["memory_bytes"] // 2)
    for source, file in ((job.get("preamble", ""), "preamble.py"), (job["source"], "program.py")):
        exec(compile(source, file, "exec", dont_inherit=True), module.__dict__)
    return module.__dict__


def _bound_first_process() -> None:
    """Bubblewrap waits there for the program's end, and needs nothing more for that. Were it ever
    made to do something else, it could not. Before `_set_identity`: only its own user may limit
    it."""
    for which in (
        resource.RLIMIT_AS, resource.RLIMIT_DATA, resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE,
        resource.RLIMIT_NPROC, resource.RLIMIT_MEMLOCK, resource.RLIMIT_CORE,
        resource.RLIMIT_SIGPENDING, resource.RLIMIT_MSGQUEUE,
    ):  # fmt: skip
        resource.prlimit(1, which, (0, 0))
    resource.prlimit(1, resource.RLIMIT_CPU, (_FIRST_PROCESS_SECONDS, _FIRST_PROCESS_SECONDS))


def _bound_stacks(most: int) -> None:
    """Give a thread that asks for a stack as large as its memory what there is: on other judges it
    is never used whole. To be called before `threading` is imported."""
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

        # Linux only; elsewhere a program outlives a parent that is killed, until its own limit.
        prctl = getattr(ctypes.CDLL(None), "prctl", None)
        if prctl is not None:
            prctl(_PR_SET_PDEATHSIG, _SIGKILL)
    elif identity != "-":
        os.setgroups([])
        os.setresgid(int(identity), int(identity), int(identity))
        os.setresuid(int(identity), int(identity), int(identity))
        # Who changes its user can't open its own `/proc/self/fd` any more, and so no `/dev/stdin`.
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 1)


def _set_limits(limits: dict[str, int], *, isolated: bool) -> None:
    used = resource.getrusage(resource.RUSAGE_SELF)
    cpu = limits["cpu_seconds"] + round(used.ru_utime + used.ru_stime)
    # A second later it is killed even if it ignores the signal.
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
        # Counted by user: outside of a sandbox the caller's other processes would count too.
        _limit(resource.RLIMIT_NPROC, limits["threads"] + _EXTRA_PROCESSES)


def _limit(which: int, most: int) -> None:
    _, hard = resource.getrlimit(which)
    if hard != resource.RLIM_INFINITY:
        most = min(most, hard)
    resource.setrlimit(which, (most, most))


def _read_exactly(size: int) -> bytes:
    """Exactly this many bytes; nothing when the input ends."""
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
