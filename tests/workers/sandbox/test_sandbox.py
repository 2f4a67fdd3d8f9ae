"""The sandbox's guarantees to its caller."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
import uvloop
from pydantic import ValidationError

from loopline.workers.sandbox import (
    Ending,
    Limits,
    Sandbox,
    SandboxSettings,
    SandboxUnavailable,
    bubblewrap,
)
from loopline.workers.sandbox.process import MAX_SOURCE_BYTES
from tests.workers.sandbox.conftest import needs_bubblewrap

UNSAFE = SandboxSettings(parallel=2, ready=1, unsafe_exec=True)


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition that another process brings about."""
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 - what we wait for is another process
            await asyncio.sleep(0.01)


def running(mark: str) -> list[int]:
    """Return processes with the mark in their environment or, like bubblewrap's, in their command
    line."""
    pids: list[int] = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            words = [*process.cmdline(), *process.environ().values()]
            if any(mark in word for word in words):
                pids.append(process.pid)
    return pids


def sandboxes() -> list[psutil.Process]:
    """Return this process's bubblewrap children; other tests may have left it a Redis server."""
    processes: list[psutil.Process] = []
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.Error):
            if child.name() == bubblewrap.PROGRAM:
                processes.append(child)
    return processes


@needs_bubblewrap
@pytest.mark.parametrize(
    ("program", "ending", "stdout", "code"),
    [
        ("print(int(input()) * 2)", Ending.OK, "42\n", 0),
        ("import sys\nprint(sys.stdin.read())\nsys.exit(0)", Ending.OK, "21\n", 0),
        ("print(1)\nraise SystemExit(3)", Ending.ERROR, "1\n", 3),
        ("print(1)\n1 / 0", Ending.ERROR, "1\n", 1),
        ("print(", Ending.ERROR, "", 1),
        ("\0", Ending.ERROR, "", 1),
        ("raise MemoryError", Ending.OUT_OF_MEMORY, "", 251),
        ("import os\nos.abort()", Ending.KILLED, "", -signal.SIGABRT),
        ("if __name__ == '__main__': print('ä')", Ending.OK, "ä\n", 0),
        ("import atexit\natexit.register(print, 'end')", Ending.OK, "end\n", 0),
        ("import os\nos.write(1, b'\\xff')", Ending.OK, "\ufffd", 0),
        ("import sys\nsys.stdin.close()", Ending.OK, "", 0),
    ],
)
async def test_the_result_states_how_a_program_ended(
    settings: SandboxSettings, program: str, ending: Ending, stdout: str, code: int
) -> None:
    async with Sandbox(settings=settings) as sandbox:
        result = await sandbox.run(program, stdin="21")
    assert (result.ending, result.stdout, result.exit_code) == (ending, stdout, code)


@needs_bubblewrap
async def test_an_error_names_the_line_of_the_program(settings: SandboxSettings) -> None:
    """The traceback contains none of the sandbox's own files."""
    async with Sandbox(settings=settings) as sandbox:
        result = await sandbox.run("def f():\n    return 1 / 0\nf()")
    assert 'File "program.py", line 2, in f' in result.stderr
    assert "ZeroDivisionError" in result.stderr
    assert "launcher" not in result.stderr


@needs_bubblewrap
async def test_large_inputs_and_outputs_pass_through(settings: SandboxSettings) -> None:
    """They exceed a pipe's capacity, which also works if the program reads nothing."""
    text = "x" * 3_000_000
    async with Sandbox(settings=settings) as sandbox:
        copied = await sandbox.run("import sys\nsys.stdout.write(sys.stdin.read())", stdin=text)
        assert (copied.ending, copied.stdout) == (Ending.OK, text)
        unread = await sandbox.run("print(1)", stdin=text)
        assert (unread.ending, unread.stdout) == (Ending.OK, "1\n")


@needs_bubblewrap
async def test_a_program_can_have_its_own_limits(settings: SandboxSettings) -> None:
    """A program's disk cannot exceed the sandbox's."""
    async with Sandbox(settings=settings) as sandbox:
        tight = Limits(memory_bytes=80 * 2**20)
        program = "print(len(bytearray(100 * 2**20)))"
        assert (await sandbox.run(program)).ending is Ending.OK
        assert (await sandbox.run(program, limits=tight)).ending is Ending.OUT_OF_MEMORY
        with pytest.raises(ValueError, match=r"disk_bytes is 1, .* created with 0"):
            await sandbox.run(program, limits=Limits(disk_bytes=1))


@needs_bubblewrap
async def test_the_cpu_limit_also_ends_a_program_that_ignores_its_signal(
    settings: SandboxSettings,
) -> None:
    """A program can ignore the signal but not the kill a second later."""
    busy = "while True: pass"
    limits = Limits(wall_seconds=60, cpu_seconds=1)
    ignoring = "import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\n" + busy
    async with Sandbox(limits, settings=settings) as sandbox:
        ended, killed = await asyncio.gather(sandbox.run(busy), sandbox.run(ignoring))
    assert (ended.ending, ended.exit_code) == (Ending.TIMED_OUT, -signal.SIGXCPU)
    assert (killed.ending, killed.exit_code) == (Ending.KILLED, -9)


@needs_bubblewrap
async def test_a_program_that_is_too_long_is_refused(settings: SandboxSettings) -> None:
    async with Sandbox(settings=settings) as sandbox:
        with pytest.raises(ValueError, match="more than the sandbox accepts"):
            await sandbox.run("#" * MAX_SOURCE_BYTES)
        assert (await sandbox.run("print(1)")).stdout == "1\n"


async def cancel_waits(sandbox: Sandbox, count: int) -> None:
    """Request interpreters that are not ready yet, and lose patience."""
    for _ in range(count):
        task = asyncio.create_task(sandbox.run("print(1)"))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


@needs_bubblewrap
async def test_cancelled_waits_leave_no_more_interpreters_than_configured(
    settings: SandboxSettings,
) -> None:
    async with Sandbox(settings=settings) as sandbox:
        await cancel_waits(sandbox, 5)
        # All are ready, and unneeded ones are gone.
        await until(lambda: 0 < sandbox.waiting == len(sandboxes()))
        assert sandbox.waiting == settings.ready


@needs_bubblewrap
async def test_no_interpreter_of_a_cancelled_wait_outlives_the_sandbox(
    settings: SandboxSettings,
) -> None:
    async with Sandbox(settings=settings) as sandbox:
        await cancel_waits(sandbox, 5)
    assert sandboxes() == []


@needs_bubblewrap
async def test_a_dead_ready_interpreter_is_replaced(settings: SandboxSettings) -> None:
    """The kernel may have chosen it when memory ran out."""
    async with Sandbox(settings=settings) as sandbox:
        await until(lambda: sandbox.waiting == 1)
        for child in sandboxes():
            child.kill()
        await until(lambda: sandbox.waiting == 0)
        assert (await sandbox.run("print(1)")).stdout == "1\n"


@needs_bubblewrap
async def test_no_program_keeps_running_when_the_caller_gives_up_or_closes(
    settings: SandboxSettings,
) -> None:
    """A cancelled run ends its program; a closed sandbox has no remaining process."""
    async with Sandbox(settings=settings) as sandbox:
        task = asyncio.create_task(sandbox.run("while True: pass"))
        await until(lambda: len(sandboxes()) >= 2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await sandbox.run("print(1)")).stdout == "1\n"
    assert sandboxes() == []


@needs_bubblewrap
async def test_sandboxed_programs_die_with_their_killed_parent(
    tmp_path: Path, identity: str
) -> None:
    """SIGKILL leaves it no time to clean up: neither a running program nor a ready interpreter
    remains."""
    mark = str(tmp_path / "mark")
    script = f"""
import asyncio
from loopline.workers.sandbox import Sandbox, SandboxSettings, bubblewrap

bubblewrap.ENVIRONMENT["MARK"] = {mark!r}
if {identity == "user namespace"}:
    bubblewrap._spare_users = lambda: None

async def main():
    async with Sandbox(settings=SandboxSettings(parallel=2, ready=2)) as sandbox:
        job = {{"kind": "program", "source": "print(1, flush=True)\\nwhile True: pass"}}
        async with sandbox.process(job) as process:
            print((await process.read_line()).decode(), flush=True)
            await asyncio.Event().wait()

asyncio.run(main())
"""
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, stdout=subprocess.PIPE
    )
    assert parent.stdout is not None
    assert await parent.stdout.readline() == b"1\n"
    assert len(running(mark)) >= 6, "two of bubblewrap's and a Python for each of 2 or 3"
    parent.kill()
    await parent.stdout.read()
    await parent.wait()
    await until(lambda: not running(mark))


async def test_the_error_without_bubblewrap_tells_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SandboxUnavailable, match=r"apt-get install bubblewrap.*unsafe_exec"):
        Sandbox()


async def test_a_bubblewrap_that_does_not_work_is_quoted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """User namespaces are the most frequent cause."""
    fake = tmp_path / bubblewrap.PROGRAM
    fake.write_text("#!/bin/sh\necho 'bwrap: setting up uid map: Permission denied' >&2\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SandboxUnavailable, match=r"uid map: Permission denied.*userns_clone"):
        async with Sandbox():
            pass


async def test_a_machine_without_a_filter_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake = tmp_path / bubblewrap.PROGRAM
    fake.write_text("#!/bin/sh\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    with pytest.raises(SandboxUnavailable, match="no system-call filter for riscv64"):
        Sandbox()


def test_only_visible_folders_are_hidden_and_each_only_once() -> None:
    """The interpreter's own folders stay visible, or nothing would run."""
    prefix = Path(bubblewrap.interpreter().prefix)
    app, state = Path("/usr/src/app"), Path("/usr/src/app/state/problems")
    folders = [state, app, Path("/srv/problems"), Path("/usr"), Path("/"), prefix, prefix / "app"]
    assert set(bubblewrap.outermost_visible(folders)) == {app, prefix / "app"}


async def test_a_sandbox_that_is_not_entered_runs_nothing() -> None:
    with pytest.raises(SandboxUnavailable, match="async with"):
        await Sandbox(settings=UNSAFE).run("print(1)")


async def test_unsafe_exec_runs_without_bubblewrap_but_with_limits(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The environment is still empty, and the program has its own working directory."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("SOME_API_KEY", "swordfish-1234")
    limits = Limits(wall_seconds=20, cpu_seconds=1, memory_bytes=128 * 2**20)
    async with Sandbox(limits, settings=UNSAFE) as sandbox:
        result = await sandbox.run("import os\nprint(os.environ.get('SOME_API_KEY'), os.listdir())")
        assert (result.ending, result.stdout) == (Ending.OK, "None []\n")
        assert (await sandbox.run("while True: pass")).ending is Ending.TIMED_OUT
        assert (await sandbox.run("bytearray(2**30)")).ending is Ending.OUT_OF_MEMORY


async def test_an_unsafe_program_s_children_end_with_it() -> None:
    """This covers the processes of its process group."""
    limits = Limits(wall_seconds=0.5)
    program = "import os, time\nprint(os.fork() or os.getpid(), flush=True)\ntime.sleep(1000)"
    async with Sandbox(limits, settings=UNSAFE) as sandbox:
        result = await sandbox.run(program)
    assert result.ending is Ending.TIMED_OUT
    pid = max(int(word) for word in result.stdout.split())
    await until(lambda: not psutil.pid_exists(pid))


@pytest.mark.parametrize("wrong", [{"cpu_seconds": 0}, {"memory_bytes": 1}, {"wall_second": 1}])
def test_invalid_limits_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValidationError):
        Limits.model_validate(wrong)


@needs_bubblewrap
def test_the_measure_command_reports_executions_per_second() -> None:
    """`python -m loopline.workers.sandbox --measure`."""
    process = subprocess.run(
        [sys.executable, "-m", "loopline.workers.sandbox", "--measure", "4", "--json"],
        capture_output=True, text=True, timeout=100, check=True,
    )  # fmt: skip
    assert '"executions_per_second": ' in process.stdout


def test_a_line_for_an_ended_program_is_dropped_under_uvloop() -> None:
    async def told_too_late() -> None:
        job = {"kind": "program", "source": "input()"}
        async with Sandbox(settings=UNSAFE) as sandbox, sandbox.process(job) as process:
            await process.end()
            await process.write_line(b"late")

    uvloop.run(told_too_late())
