"""The slot of one worker under a supervisor."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from loopline.runtime.config.sections import SupervisorSettings
from loopline.runtime.errors import EXIT_CONFIG
from loopline.runtime.supervise.worker_slot import Launch, WorkerSlot


async def test_a_worker_that_cannot_start_is_retried_and_then_reported_as_broken(
    tmp_path: Path,
) -> None:
    settings = SupervisorSettings.model_validate({"backoff_seconds": 0.01, "crash_loop_deaths": 3})
    nothing = (str(tmp_path / "no-such-program"),)
    slot = WorkerSlot("slm", 1, Launch(settings, lambda _: tmp_path / "set", tmp_path, nothing))
    running = asyncio.create_task(slot.run())
    async with asyncio.timeout(20):
        while slot.state != "broken":  # noqa: ASYNC110 - what we wait for is another process
            await asyncio.sleep(0.01)
    assert slot.restarts == 2
    assert "3 deaths" in slot.reason
    await slot.stop()
    await running


async def test_the_death_of_a_worker_is_noticed_although_its_child_keeps_its_output_open(
    tmp_path: Path,
) -> None:
    program = (
        "import os, subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()'])\n"
        f"print(child.pid, flush=True); os._exit({EXIT_CONFIG})"
    )
    command = (sys.executable, "-c", program)
    slot = WorkerSlot(
        "tool", 1, Launch(SupervisorSettings(), lambda _: tmp_path / "set", tmp_path, command)
    )
    running = asyncio.create_task(slot.run())
    try:
        async with asyncio.timeout(20):
            while slot.state != "broken":  # noqa: ASYNC110 - what we wait for is another process
                await asyncio.sleep(0.01)
            assert f"exit code {EXIT_CONFIG}" in slot.reason
            await slot.stop()
            await running
    finally:
        for child in slot.last_lines:
            os.kill(int(child), signal.SIGKILL)


@pytest.mark.parametrize(
    ("printed", "message"),
    [
        ("ready\nerror: no key\n  → export one\n", "error: no key → export one"),
        ("ready\nall is well\n", "all is well"),
        ("", ""),
    ],
    ids=["its error and what to do", "else its last line", "nothing"],
)
async def test_a_worker_that_is_given_up_is_logged_with_its_last_error(
    tmp_path: Path, printed: str, message: str
) -> None:
    program = f"import sys; print({printed!r}, end=''); sys.exit({EXIT_CONFIG})"
    command = (sys.executable, "-c", program)
    slot = WorkerSlot(
        "gpu", 1, Launch(SupervisorSettings(), lambda _: tmp_path / "set", tmp_path, command)
    )
    with capture_logs() as logged:
        running = asyncio.create_task(slot.run())
        async with asyncio.timeout(20):
            while slot.state != "broken":  # noqa: ASYNC110 - what we wait for is another process
                await asyncio.sleep(0.01)
    (line,) = [line for line in logged if line["event"] == "worker given up"]
    assert line["last_words"] == message
    await slot.stop()
    await running


@pytest.mark.parametrize("gives_back", [True, False], ids=["it leaves", "it does not hear"])
async def test_a_worker_that_does_not_drain_in_time_may_return_its_work_before_it_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gives_back: bool
) -> None:
    monkeypatch.setattr(
        "loopline.runtime.supervise.worker_slot.ABANDON_SECONDS", 20.0 if gives_back else 0.1
    )
    program = (
        "import os, signal, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "left = lambda *_: (print('gave it back', flush=True), os._exit(0))\n"
        f"signal.signal(signal.SIGQUIT, left if {gives_back} else signal.SIG_IGN)\n"
        "print('serving', flush=True)\n"
        "while True: time.sleep(60)\n"
    )
    settings = SupervisorSettings.model_validate({"drain_seconds": 0.1})
    command = (sys.executable, "-c", program)
    slot = WorkerSlot("slm", 1, Launch(settings, lambda _: tmp_path / "set", tmp_path, command))
    running = asyncio.create_task(slot.run())
    async with asyncio.timeout(20):
        while not slot.last_lines:  # noqa: ASYNC110 - what we wait for is another process
            await asyncio.sleep(0.01)
        await slot.stop()
        await running
    assert slot.process is not None
    assert slot.process.returncode == (0 if gives_back else -signal.SIGKILL)
    assert slot.last_lines == ["serving", *["gave it back"] * gives_back]
