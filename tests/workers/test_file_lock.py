"""A lock has one holder at a time and never outlives it."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from loopline.workers.file_lock import FileLock, is_locked


def test_acquiring_a_held_lock_fails_at_once_until_its_holder_releases_it(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    first, second = FileLock(path, mode=0o600), FileLock(path)
    assert not is_locked(path)
    first.acquire()
    assert path.stat().st_mode & 0o777 == 0o600
    assert is_locked(path)
    with pytest.raises(BlockingIOError):
        second.acquire()
    first.release()
    assert not is_locked(path)
    second.acquire()
    second.release(remove=True)
    second.release()
    assert not path.exists()


def test_a_folder_can_be_locked_without_a_file_in_it(tmp_path: Path) -> None:
    first = FileLock(tmp_path)
    first.acquire()
    with pytest.raises(BlockingIOError):
        FileLock(tmp_path).acquire()
    first.release()
    assert list(tmp_path.iterdir()) == []


def test_a_lock_is_released_when_its_process_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    program = (
        "import sys, time\nfrom pathlib import Path\n"
        "from loopline.workers.file_lock import FileLock\n"
        "lock = FileLock(Path(sys.argv[1]))\nlock.acquire()\nprint('held', flush=True)\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        assert is_locked(path)
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        FileLock(path).acquire()
