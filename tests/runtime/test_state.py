"""The state directory: one supervisor at a time, and nothing stale that could block the next."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import pytest

from loopline.runtime.config.state import RunFile, StateDirectory, StateLock
from loopline.runtime.errors import EXIT_FAILED, UserError
from loopline.workers.atomic_files import write_atomic
from tests.runtime.conftest import Deployment


def run_file(pid: int) -> RunFile:
    return RunFile(
        pid=pid, started=0.0, profile="micro", redis_url="unix:///x", control="/x", version="1"
    )


def test_a_second_lock_is_refused_with_the_pid_of_the_first(tmp_path: Path) -> None:
    state = StateDirectory(tmp_path)
    state.create()
    lock = StateLock(state)
    with pytest.raises(UserError, match=f"pid {os.getpid()}") as caught:
        StateLock(state)
    assert "runtime down" in str(caught.value)
    lock.release()
    StateLock(state).release()


def test_a_process_that_only_inspects_the_lock_is_not_taken_for_its_owner(tmp_path: Path) -> None:
    """An inspection shares the lock for a moment, in which a supervisor may want it."""
    state = StateDirectory(tmp_path)
    state.create()
    state.lock_file.touch()
    with ThreadPoolExecutor(1) as threads, state.lock_file.open("rb") as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        taking = threads.submit(StateLock, state)
        assert not wait([taking], timeout=0.1).done
        fcntl.flock(looking, fcntl.LOCK_UN)
        taking.result().release()


def test_waiting_for_a_stuck_inspection_of_the_lock_has_a_time_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loopline.runtime.config.state.LOOK_SECONDS", 0.05)
    state = StateDirectory(tmp_path)
    state.create()
    state.lock_file.touch()
    with state.lock_file.open("rb") as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        with pytest.raises(UserError, match=r"have been checking .*lock"):
            StateLock(state)
    StateLock(state).release()


def test_a_killed_owner_leaves_no_lock_behind(tmp_path: Path) -> None:
    state = StateDirectory(tmp_path)
    state.create()
    program = (
        "import os, pathlib, signal, sys\n"
        "from loopline.runtime.config.state import StateDirectory, StateLock\n"
        "lock = StateLock(StateDirectory(pathlib.Path(sys.argv[1])))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    process = subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False)
    assert process.returncode == -9
    StateLock(state).release()


def test_a_run_file_without_a_live_owner_is_ignored(tmp_path: Path) -> None:
    state = StateDirectory(tmp_path)
    state.create()
    write_atomic(state.run_file, run_file(1).model_dump_json(), private=True)
    assert state.running() is None
    lock = StateLock(state)
    lock.publish(run_file(os.getpid()))
    running = state.running()
    assert running is not None
    assert running.pid == os.getpid()
    lock.release()
    assert state.running() is None


def test_the_run_file_of_a_killed_owner_is_ignored_while_the_next_one_starts(
    tmp_path: Path,
) -> None:
    state = StateDirectory(tmp_path)
    state.create()
    write_atomic(state.run_file, run_file(1).model_dump_json(), private=True)
    lock = StateLock(state)
    assert state.running() is None
    lock.release()


def test_only_the_owner_can_read_files_with_secrets(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    write_atomic(path, "secret", private=True)
    assert path.stat().st_mode & 0o077 == 0
    assert path.read_text() == "secret"
    assert list(tmp_path.iterdir()) == [path]


def test_a_directory_that_cannot_be_read_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    state = StateDirectory(tmp_path / "file")
    for look in (state.running, state.holder):
        with pytest.raises(UserError, match=r"can't be read: Not a directory[\s\S]*LOOPLINE_STATE"):
            look()


def test_a_directory_that_cannot_be_created_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="can't be used") as caught:
        StateDirectory(tmp_path / "file" / "state").create()
    assert "LOOPLINE_STATE" in str(caught.value)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
@pytest.mark.parametrize(
    ("command", "file"),
    [
        *((command, "") for command in ("down", "ask 1+1", "status", "scale slm=1", "logs", "up",
                                         "jobs")),
        *(("down", file) for file in ("run.json", "resolved.json", "lock")),
    ],
)  # fmt: skip
def test_a_state_directory_of_another_user_is_refused(
    deployment: Deployment, command: str, file: str
) -> None:
    deployment.state.path.mkdir(exist_ok=True)
    victim = subprocess.Popen(["sleep", "60"])
    run = {"pid": victim.pid, "started": 0, "profile": "micro", "redis_url": "redis://h:1/0",
           "control": "/nowhere", "version": ""}  # fmt: skip
    deployment.state.run_file.write_text(json.dumps(run))
    deployment.state.resolved.write_text("{}")
    with deployment.state.lock_file.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        os.chown(deployment.state.path / file, 12345, -1)
        process = deployment.run(*command.split())
    assert process.returncode == EXIT_FAILED
    assert "belongs to the user number 12345" in process.stderr
    assert victim.poll() is None
    victim.kill()
    victim.wait()
