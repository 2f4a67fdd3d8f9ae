"""A full or nearly full disk: the original error is reported too, and a training with room to start
can resume."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from loopline.trainers.grpo.learner import NotFinite
from loopline.trainers.grpo.pipeline import Progress, StepListener, initial_policies, train
from loopline.trainers.grpo.settings import GrpoSettings

from .recorded import record
from .test_training import full, spoiled
from .tiny_grpo import data_in, load, rollouts, settings_of, write_base


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_base(tmp_path_factory.mktemp("disks") / "base")


def test_a_nan_loss_is_reported_with_its_samples_even_if_the_disk_is_full(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = load(base)
    runs = spoiled([run for version in range(2) for run in rollouts(loaded, version)], 4)
    asyncio.run(record(tmp_path / "store", runs))
    settings: GrpoSettings = settings_of(staleness=0, objective={"correction": "clip"})
    data = data_in(tmp_path / "store", load(base))

    def fill(now: Progress) -> None:
        monkeypatch.setattr("loopline.trainers.core.checkpoints.shutil.disk_usage", full)

    with pytest.raises(NotFinite) as raised:
        train(settings, data, load(base), tmp_path / "out", watch=StepListener(progress=fill))
    message = str(raised.value)
    assert "step 2: the loss is inf at version 1, policy shared" in message
    assert runs[4].run.id in message
    assert "version 1, after step 1, is the last good one, but could not be saved: " in message
    assert "free some space" in message
    monkeypatch.undo()
    with pytest.raises(NotFinite, match="version 1, after step 1, is the last good one: it is in"):
        train(settings, data, load(base), tmp_path / "out")
    assert (tmp_path / "out/last-good/shared/model.safetensors").is_file()


def test_a_training_with_room_to_start_has_room_to_resume(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a disk with room for two checkpoints and little else."""
    asyncio.run(record(tmp_path / "store", rollouts(load(base), 0, count=6)))
    settings, data = settings_of(batch=2), data_in(tmp_path / "store", load(base))
    trained = initial_policies(settings, ["shared"], load(base)).network.trained()
    room = 2 * 12 * sum(tensor.numel() for _, tensor in trained) + 16 * 2**20 + 250_000
    monkeypatch.setattr(
        "loopline.trainers.core.checkpoints.shutil.disk_usage", disk_of(room, tmp_path / "out")
    )

    def stop(step: int) -> None:
        if step == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(
            settings, data, load(base), tmp_path / "out", checkpoint_every=1,
            watch=StepListener(checkpoint=stop),
        )  # fmt: skip
    assert len(train(settings, data, load(base), tmp_path / "out").steps) == 3


def disk_of(room: int, folder: Path) -> Callable[[Path], SimpleNamespace]:
    """The result of `shutil.disk_usage` for a disk that contains only this folder."""

    def usage(path: Path) -> SimpleNamespace:
        files = (entry for entry in folder.rglob("*") if entry.is_file())
        return SimpleNamespace(free=room - sum(entry.stat().st_size for entry in files))

    return usage
