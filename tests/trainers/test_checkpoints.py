"""At any moment a training has a complete checkpoint, and a folder that is recognised as its
own."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from loopline.trainers.core.checkpoints import (
    CheckpointState,
    forget_work,
    load_checkpoint,
    remove_checkpoints,
    require_room_for_two,
    require_unused,
    save_checkpoint,
)
from loopline.trainers.errors import NotEnoughDisk, TrainingError

from .full_disk import no_file_larger_than


def saved(folder: Path, step: int, value: float) -> None:
    save_checkpoint(folder, CheckpointState(step=step), {"weights": torch.full((2,), value)})


def read(folder: Path) -> tuple[int, float]:
    checkpoint = load_checkpoint(folder, CheckpointState)
    assert checkpoint is not None
    return checkpoint.state.step, float(checkpoint.tensors["weights"][0])


class Killed(Exception):
    """Stands for the death of the process."""


@pytest.mark.parametrize("step", [10, 11])
def test_a_kill_during_the_rename_of_a_checkpoint_keeps_the_previous_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """Even if both are of the same step."""
    saved(tmp_path, 10, 1.0)
    plain = Path.rename

    def rename(self: Path, target: Path) -> Path:
        if self.name.startswith(".partial"):
            raise Killed
        return plain(self, target)

    monkeypatch.setattr(Path, "rename", rename)
    with pytest.raises(Killed):
        saved(tmp_path, step, 2.0)
    assert read(tmp_path) == (10, 1.0)
    monkeypatch.undo()
    saved(tmp_path, step, 3.0)
    assert read(tmp_path) == (step, 3.0)
    assert len(list(tmp_path.glob("checkpoint-*"))) == 1


@pytest.mark.parametrize("within", [False, True])
def test_a_kill_while_a_checkpoint_of_the_same_step_is_replaced_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, within: bool
) -> None:
    saved(tmp_path, 10, 1.0)
    plain = shutil.rmtree

    def remove(path: Path, ignore_errors: bool = False) -> None:
        if path.suffix == ".old" and path.exists():
            if within:
                (path / "state.json").unlink()
            raise Killed
        plain(path, ignore_errors=ignore_errors)

    monkeypatch.setattr("loopline.trainers.core.checkpoints.shutil.rmtree", remove)
    with pytest.raises(Killed):
        saved(tmp_path, 10, 2.0)
    monkeypatch.undo()
    assert len(list(tmp_path.glob("checkpoint-*"))) == 2
    assert read(tmp_path) == (10, 2.0)
    saved(tmp_path, 10, 3.0)
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-00000010"]
    assert read(tmp_path) == (10, 3.0)


def test_the_room_check_does_not_count_an_existing_checkpoint_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a disk with room for two files of a megabyte and their companions."""
    size, extra, reserve = 10**6, 10**5, 16 * 2**20

    def usage(path: Path) -> SimpleNamespace:
        total_bytes = sum(entry.stat().st_size for entry in tmp_path.rglob("*") if entry.is_file())
        return SimpleNamespace(free=2 * size + extra + reserve - total_bytes)

    monkeypatch.setattr("loopline.trainers.core.checkpoints.shutil.disk_usage", usage)
    require_room_for_two(tmp_path, size, extra)
    weights = torch.zeros(size // 4 - 1_000)
    save_checkpoint(tmp_path, CheckpointState(step=10), {"weights": weights})
    require_room_for_two(tmp_path, size, extra)
    for name in ("policies", "checkpoint-00000010/more", "checkpoint-00000010.old"):
        # Neither files of others nor a second checkpoint count for more than one checkpoint.
        (tmp_path / name).write_bytes(bytes(10**5))
        with pytest.raises(NotEnoughDisk):
            require_room_for_two(tmp_path, size, extra)
        (tmp_path / name).unlink()


def test_a_full_disk_keeps_the_previous_checkpoint_and_leaves_no_partial_one(
    tmp_path: Path,
) -> None:
    saved(tmp_path, 10, 1.0)
    for step in (10, 11):
        pattern = rf"checkpoint-000000{step} can't be written \(File too large\): free some space"
        with no_file_larger_than(16), pytest.raises(NotEnoughDisk, match=pattern):
            saved(tmp_path, step, 2.0)
        assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-00000010"]
        assert read(tmp_path) == (10, 1.0)
    saved(tmp_path, 11, 2.0)
    assert read(tmp_path) == (11, 2.0)


def test_a_training_can_start_in_a_folder_with_partial_files_of_a_kill(tmp_path: Path) -> None:
    require_unused(tmp_path / "none")
    (tmp_path / ".policies.part").mkdir()
    (tmp_path / ".runs.json.17.partial").touch()
    (tmp_path / "runs.json").touch()
    require_unused(tmp_path, but=("runs.json",))
    with pytest.raises(TrainingError, match=r"already contains other files \(runs\.json\)"):
        require_unused(tmp_path)


@pytest.mark.parametrize("forget", [forget_work, remove_checkpoints])
def test_checkpoints_are_deleted_once_their_results_are_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forget: Callable[[Path], None]
) -> None:
    (tmp_path / "checkpoint-1").mkdir()
    there: list[bool] = []
    monkeypatch.setattr("os.sync", lambda: there.append((tmp_path / "checkpoint-1").exists()))
    forget(tmp_path)
    assert there == [True]
    assert not (tmp_path / "checkpoint-1").exists()
