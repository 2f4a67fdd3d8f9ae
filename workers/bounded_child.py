"""Processes untrusted input in a child process, which may die from it.

A parser in C can crash, recurse without end, or use hours and all memory, and nothing in the same
process can stop it. Our child limits itself before it reads its input, inherits only a few
environment variables, dies with this process, and is killed when the caller stops waiting.
"""

from __future__ import annotations

import asyncio
import os
import signal
from asyncio.subprocess import PIPE, Process
from pathlib import Path

from loopline.bus.tasks import finish
from loopline.workers.isolated_python import OWN_PYTHON
from loopline.workers.process_lifetime import dies_with_parent
from loopline.workers.stop_signals import send

_INHERITED = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "LD_LIBRARY_PATH", "PYTHONPATH")
"""Environment variables that an interpreter may need to start the way this one did."""
_READ_BYTES = 1 << 16
_ERROR_BYTES = 2_000
_ROOT = str(Path(__file__).parents[2])


class ChildFailed(Exception):
    """A child that returned no result, and why."""


async def ask_child(module: str, request: bytes, *, max_answer_bytes: int) -> bytes:
    """Run one of our modules on this input and return its output.

    Raises `ChildFailed`. The child is killed if the caller is cancelled, for example by a deadline.
    """
    child = await asyncio.create_subprocess_exec(
        *OWN_PYTHON, "-m", module,
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
        env=_environment(),
        start_new_session=True,
        preexec_fn=dies_with_parent(signal.SIGKILL),
    )  # fmt: skip
    try:
        answer, error_output, _ = await asyncio.gather(
            _read(child.stdout, max_answer_bytes),
            _read_last_bytes(child.stderr),
            _write(child, request),
        )
        status = await child.wait()
    finally:
        if child.returncode is None:
            await finish(_kill_at_exit(child))
    if status < 0:
        raise ChildFailed(_exit_reason(-status))
    if status != 0:
        last = error_output.decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise ChildFailed("it needs too much memory" if "MemoryError" in last else last[:300])
    return answer


async def _kill_at_exit(child: Process) -> None:
    send(child, signal.SIGKILL)
    await child.wait()


def _environment() -> dict[str, str]:
    variables = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    # -P keeps this process's current folder out of the import path.
    places = [place for place in (variables.get("PYTHONPATH"), _ROOT) if place]
    return {**variables, "PYTHONPATH": os.pathsep.join(places)}


def _exit_reason(number: int) -> str:
    match number:
        case signal.SIGXCPU:
            return "reading it takes too long"
        case signal.SIGKILL:
            return "its parser was killed for using too much time or memory"
        case _:
            return f"its parser crashed ({signal.Signals(number).name})"


async def _read(output: asyncio.StreamReader | None, limit: int) -> bytes:
    assert output is not None
    answer = bytearray()
    while chunk := await output.read(_READ_BYTES):
        answer += chunk
        if len(answer) > limit:
            raise ChildFailed(f"its parsed form has more than {limit} bytes")
    return bytes(answer)


async def _read_last_bytes(output: asyncio.StreamReader | None) -> bytes:
    assert output is not None
    tail = b""
    while chunk := await output.read(_READ_BYTES):
        tail = (tail + chunk)[-_ERROR_BYTES:]
    return tail


async def _write(child: Process, data: bytes) -> None:
    assert child.stdin is not None
    try:
        child.stdin.write(data)
        await child.stdin.drain()
        child.stdin.close()
    except (OSError, RuntimeError):  # it is already dead; its exit status says why
        return
