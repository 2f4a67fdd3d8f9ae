"""Two commands never use one folder at the same time."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from loopline.trainers.cli import app
from loopline.trainers.core.checkpoints import require_unused
from loopline.trainers.core.output_folder import lock_output
from loopline.trainers.data.datasets import write
from loopline.trainers.errors import TrainingError
from tests.trainers.tiny_glpft import DATA

HOLDER = (
    "import sys\nfrom pathlib import Path\n"
    "from loopline.trainers.core.output_folder import lock_output\n"
    "with lock_output(Path(sys.argv[1])):\n    print('held', flush=True)\n    sys.stdin.read()\n"
)

TAKER = """
import os, sys
from pathlib import Path
from loopline.trainers.errors import TrainingError
from loopline.trainers.core.output_folder import lock_output
taken = 0
while taken < 200:
    try:
        with lock_output(Path(sys.argv[1])):
            os.mkdir(sys.argv[2])  # Fails where another one is inside.
            os.rmdir(sys.argv[2])
            taken += 1
    except TrainingError:
        pass
"""


@pytest.mark.parametrize("command", ["sft micro-slm --output OUT", "grpo demo OUT",
                                     "glpft OUT --data DATA"])  # fmt: skip
def test_a_training_does_not_start_in_the_folder_of_a_running_one(
    tmp_path: Path, command: str
) -> None:
    write(DATA, tmp_path / "data")
    places = {"OUT": str(tmp_path / "out"), "DATA": str(tmp_path / "data")}
    with lock_output(tmp_path / "out"):
        ended = CliRunner().invoke(app, [places.get(part, part) for part in command.split()])
    assert "another command is using the folder" in str(ended.exception)
    assert list((tmp_path / "out").iterdir()) == []


def test_a_folder_is_free_again_when_its_command_was_killed(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as holder:  # fmt: skip
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(TrainingError, match="another command"), lock_output(tmp_path):
            pass
        holder.send_signal(signal.SIGKILL)
        holder.wait(30)
        with lock_output(tmp_path):
            require_unused(tmp_path)


def test_a_released_folder_has_no_lock_file_and_the_next_command_can_use_it(tmp_path: Path) -> None:
    for _ in range(2):
        with lock_output(tmp_path):
            assert (tmp_path / ".lock").exists()
        assert list(tmp_path.iterdir()) == []
    (tmp_path / "notes").mkdir()
    with pytest.raises(TrainingError, match="other files"), lock_output(tmp_path):
        require_unused(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes"]


def test_only_one_of_many_processes_holds_the_folder_at_a_time(tmp_path: Path) -> None:
    """Even if one removes the file that another has already opened."""
    workers = [
        subprocess.Popen([sys.executable, "-c", TAKER, str(tmp_path / "out"), str(tmp_path / "in")])
        for _ in range(4)
    ]
    assert [worker.wait(60) for worker in workers] == [0] * 4
