"""Turns on one GPU between processes: no server uses it during a training, and no turn outlives its
process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from loopline.workers.gpu_turns import ServerTurn, training_turn, turns_folder

HOLD = """
import sys
from loopline.workers.gpu_turns import training_turn
with training_turn(sys.argv[1]):
    print("mine", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setenv("TMPDIR", str(tmp_path))


@contextmanager
def training(name: str) -> Generator[subprocess.Popen[bytes]]:
    """A process that waits for its turn and then takes it."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_a_training_waits_until_no_server_has_the_gpu() -> None:
    servers = [ServerTurn("gpu0"), ServerTurn("gpu0")]
    assert all(server.take() for server in servers)
    assert not servers[0].is_wanted()
    calls = 0

    def give_one() -> None:
        nonlocal calls
        assert servers[0].is_wanted()
        servers[calls].give()
        calls += 1

    with training_turn("gpu0", give_one) as waited:
        assert calls == 2
        assert waited >= 0
        assert not servers[0].take()
    assert servers[0].take()
    servers[0].give()


def test_a_turn_ends_with_its_process() -> None:
    server = ServerTurn("gpu0")
    with training("gpu0") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"mine\n"
        assert not server.take()
        process.kill()
        process.wait()
        assert server.take()
    server.give()


def test_gpus_with_different_names_have_separate_turns() -> None:
    server = ServerTurn("gpu0")
    assert server.take()
    with training_turn("gpu1"):
        assert not server.is_wanted()
    server.give()


def test_a_training_without_a_shared_gpu_does_not_wait() -> None:
    with training_turn(None) as waited:
        assert waited == 0.0


def test_a_waiting_training_can_be_stopped() -> None:
    server = ServerTurn("gpu0")
    assert server.take()

    def stop() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), training_turn("gpu0", stop):
        pytest.fail("it has no turn")
    assert not server.is_wanted()
    server.give()


def test_a_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    folder = turns_folder()
    folder.rmdir()
    folder.symlink_to(tmp_path)
    with pytest.raises(PermissionError, match="belongs to another user"):
        ServerTurn("gpu0")
