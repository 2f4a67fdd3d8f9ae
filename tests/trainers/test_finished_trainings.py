"""A training that was killed just before it removed its last checkpoint: it is finished, and the
next call leaves no checkpoint."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from loopline.trainers.glpft import pipeline as glpft
from loopline.trainers.grpo import pipeline as grpo
from loopline.trainers.sft import training as sft

from .grpo.recorded import record
from .grpo.tiny_grpo import data_in, load, rollouts, settings_of, write_base
from .tiny import TINY
from .tiny_glpft import DATA, changed


class Killed(BaseException):
    """Stands for the death of the process."""


def of_sft(folder: Path) -> None:
    sft.train(TINY, folder)


def of_glpft(folder: Path) -> None:
    glpft.train(changed(tokens=6_000), DATA, folder)


def of_grpo(folder: Path) -> None:
    base = folder.parent / "base"
    if not base.exists():
        write_base(base)
        asyncio.run(record(folder.parent / "store", rollouts(load(base), 0)))
    data = data_in(folder.parent / "store", load(base))
    grpo.train(settings_of(), data, load(base), folder)


@pytest.mark.parametrize(
    ("train", "place"),
    [
        (of_sft, "loopline.trainers.sft.training.remove_checkpoints"),
        (of_glpft, "loopline.trainers.glpft.pipeline.forget_work"),
        (of_grpo, "loopline.trainers.grpo.pipeline.forget_work"),
    ],
)
@pytest.mark.slow
def test_rerunning_a_finished_training_deletes_its_last_checkpoint(
    train: Callable[[Path], None], place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(folder: Path) -> None:
        raise Killed

    monkeypatch.setattr("loopline.trainers.sft.training.TOKENIZER_DIALOGUES", 400)
    with monkeypatch.context() as at_the_end:
        at_the_end.setattr(place, die)
        with pytest.raises(Killed):
            train(tmp_path / "out")
    assert list(tmp_path.rglob("checkpoint-*"))
    train(tmp_path / "out")
    assert not list(tmp_path.rglob("checkpoint-*"))
