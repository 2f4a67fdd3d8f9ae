"""The judge as a non-root user: its process has really given up root."""

from __future__ import annotations

import json
import os
import shutil
import site
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.workers.sandbox.conftest import needs_bubblewrap
from tests.workers.sandbox.test_escapes import (
    KERNEL_MEMORY,
    OTHERS_MEMORY,
    TIGHT,
    TRY,
    asyncio_and_buffers,
)

USER = 12345
"""An id that no user has."""
JUDGE = """
import asyncio, json, os, sys
from loopline.workers.sandbox import Limits, Sandbox, SandboxSettings

async def main():
    told = json.load(sys.stdin)
    settings = SandboxSettings(parallel=1, ready=1)
    async with Sandbox(Limits(**told["limits"]), settings=settings) as sandbox:
        result = await sandbox.run(told["program"])
        print(json.dumps([os.getuid(), result.ending, result.stdout, result.stderr]))

asyncio.run(main())
"""
PROJECT = Path(__file__).parents[3]


def _python() -> str | None:
    """Find a Python of this version that another user may run; this one may be in root's home."""
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for path in (
        os.path.realpath(sys.executable),
        shutil.which(name, path="/usr/local/bin:/usr/bin"),
    ):
        if path is None:
            continue
        try:
            subprocess.run([path, "-c", ""], user=USER, group=USER, extra_groups=[], check=True)
        except (OSError, subprocess.CalledProcessError):
            continue
        return path
    return None


def judged(program: str, **limits: int) -> str:
    """Return the output of a program whose judge is another user."""
    if os.geteuid() != 0:
        pytest.skip("anyone who runs this is not root: the other tests are such a judge's")
    python = _python()
    if python is None:
        pytest.skip("no Python of this version is another user's to run")
    folders = [str(PROJECT), sysconfig.get_path("purelib"), *site.getsitepackages()]
    payload = {"program": TRY + program, "limits": {**TIGHT.model_dump(), **limits}}
    process = subprocess.run(
        [python, "-P", "-c", JUDGE],
        input=json.dumps(payload),
        capture_output=True,
        text=True,
        timeout=100,
        cwd="/",
        env={"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(folders),
             "PYTHONDONTWRITEBYTECODE": "1"},
        user=USER,
        group=USER,
        extra_groups=[],
    )  # fmt: skip
    if process.returncode and "ModuleNotFoundError" in process.stderr:
        pytest.skip("the project's files are not another user's to read")
    assert process.returncode == 0, process.stderr
    user, ending, stdout, stderr = json.loads(process.stdout)
    assert (user, ending) == (USER, "ok"), stderr
    return str(stdout).strip()


pytestmark = needs_bubblewrap


def test_a_program_can_read_and_write_only_its_own_memory() -> None:
    assert judged(OTHERS_MEMORY) == "['self']"


def test_the_process_that_waits_for_a_program_can_do_nothing_else() -> None:
    """This matters if a program gets access to it in spite of everything."""
    program = """
import resource
names = ["AS", "DATA", "FSIZE", "NOFILE", "NPROC", "MEMLOCK"]
print({resource.prlimit(1, getattr(resource, "RLIMIT_" + name)) for name in names},
      tried(lambda: resource.prlimit(1, resource.RLIMIT_AS, (2**30, 2**30))))
"""
    assert judged(program) == "{(0, 0)} PermissionError"


def test_kernel_memory_outside_the_limit_is_refused() -> None:
    assert judged(KERNEL_MEMORY).split() == ["PermissionError"] * 8 + ["-1"] * 4
    assert judged(asyncio_and_buffers(64)).split() == ["5", "True", "True"]


def test_threads_and_memory_are_limited() -> None:
    program = """
import threading
stop, made, hold = threading.Event(), [], []
threading.stack_size(65536)
def more():
    while len(made) < 2000:
        thread = threading.Thread(target=stop.wait)
        thread.start()
        made.append(thread)
def grow():
    while True:
        hold.append(bytearray(2**20))
print(tried(more), len(made) <= 20, tried(grow), len(hold) < 128)
stop.set()
"""
    assert judged(program, threads=8) == "RuntimeError True MemoryError True"
