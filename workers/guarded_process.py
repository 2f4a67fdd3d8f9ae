"""Starts a program under `loopline.workers.guardian`: its process tree dies with this process."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import Process
from collections.abc import Mapping, Sequence
from pathlib import Path

GUARDIAN = str(Path(__file__).with_name("guardian.py"))


async def start_guarded(
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    stdin: int,
    stdout: int,
    stderr: int,
    limit: int,
    cwd: Path | None = None,
) -> tuple[Process, int]:
    """Start the program; returns the guardian's process, and the end of the pipe that keeps the
    program alive.

    When the caller closes the pipe, or this process dies, all that is left of the program is
    killed. `limit`: maximum bytes in one line of its output. Raises `OSError` if no process can be
    started.
    """
    watched, write_end = os.pipe()
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-I", "-S", GUARDIAN, str(watched), *command,
            stdin=stdin, stdout=stdout, stderr=stderr, limit=limit, env=dict(environment),
            cwd=cwd, start_new_session=True, pass_fds=(watched,),
        )  # fmt: skip
    except BaseException:
        os.close(write_end)
        raise
    finally:
        os.close(watched)
    return process, write_end
