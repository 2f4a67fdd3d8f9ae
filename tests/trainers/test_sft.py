"""Training runs: they learn, survive a kill, and refuse unusable data."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from loopline.trainers.core.checkpoints import TrainingState, load_checkpoint, require_disk
from loopline.trainers.core.models import WEIGHTS, export_model, load_model
from loopline.trainers.errors import (
    CorruptCheckpoint,
    NotEnoughDisk,
    TrainingError,
    UnknownModel,
    UnreadableModel,
)
from loopline.trainers.sft.card import FACTS, read_facts, write_facts
from loopline.trainers.sft.evaluation import Skill, Task, add_skills, read_skills, splits
from loopline.trainers.sft.recipes import recipe
from loopline.trainers.sft.training import Progress, train
from tests.forked import TRAIN, Forked, forked

from .curves_of_tensorboard import of_tensorboard
from .full_disk import no_file_larger_than
from .quick_train import DIALOGUES
from .tiny import TINY

pytestmark = pytest.mark.timeout(400)

SHORT = ("micro-slm", "--steps", "12", "--batch", "2", "--checkpoint-every", "4", "--samples", "0")
STOPPED = "stopped; resume with the same command, without --restart\n"


@pytest.fixture(autouse=True)
def few_dialogues(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each training still learns its own tokenizer: that is part of `bit for bit`."""
    monkeypatch.setattr("loopline.trainers.sft.training.TOKENIZER_DIALOGUES", DIALOGUES)


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return forked("tests.trainers.quick_train", TRAIN, ("sft", *arguments), timeout=100)


def stop_after_first_checkpoint(
    arguments: Sequence[str], number: signal.Signals, folder: Path
) -> tuple[int, str]:
    """Start the command and send the signal once it reports a written checkpoint; returns its exit
    code and its stderr."""
    # Unbuffered, so that the line arrives with the checkpoint.
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    output, errors = folder / "stdout", folder / "stderr"
    process = Forked(
        "tests.trainers.quick_train", TRAIN, ("sft", *arguments),
        env=environment, stdout=output, stderr=errors,
    )  # fmt: skip
    while process.poll() is None and "\ncheckpoint" not in output.read_text():
        time.sleep(0.002)
    process.send_signal(number)
    return process.wait(100), errors.read_text()


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a finished run. Don't change it."""
    folder = tmp_path_factory.mktemp("whole")
    process = run(*SHORT, "--output", str(folder))
    assert process.returncode == 0, process.stderr
    assert "training starts, 12 steps in all" in process.stdout
    return folder


def test_a_short_run_lowers_the_loss(tmp_path: Path) -> None:
    updates: list[Progress] = []
    facts = train(
        TINY.model_copy(update={"steps": 60}),
        tmp_path,
        on_progress=updates.append,
        trackers=("tensorboard",),
    )
    drawn = of_tensorboard(tmp_path / "curves" / "sft")
    assert drawn == [(progress.step, pytest.approx(progress.loss)) for progress in updates]
    assert [progress.step for progress in updates] == [20, 40, 60]
    assert updates[0].loss > updates[1].loss > updates[2].loss
    assert facts.last_loss == updates[-1].loss < 5
    assert load_model(tmp_path).context == TINY.context


@pytest.mark.slow
def test_a_run_killed_with_sigkill_and_resumed_has_the_same_weights_bit_for_bit(
    tmp_path: Path, uninterrupted: Path
) -> None:
    folder = tmp_path / "model"
    arguments = [*SHORT, "--output", str(folder)]
    assert stop_after_first_checkpoint(arguments, signal.SIGKILL, tmp_path)[0] == -signal.SIGKILL
    assert not (folder / WEIGHTS).exists()
    process = run(*arguments)
    assert process.returncode == 0, process.stderr
    assert process.stdout.startswith(f"learning the tokenizer from {DIALOGUES} dialogues…\n")
    assert re.search(r"^training resumes from step \d+, 12 steps in all$", process.stdout, re.M)
    assert (folder / WEIGHTS).read_bytes() == (uninterrupted / WEIGHTS).read_bytes()


@pytest.mark.slow
def test_a_run_stopped_by_ctrl_c_and_resumed_has_the_same_weights_bit_for_bit(
    tmp_path: Path, uninterrupted: Path
) -> None:
    folder = tmp_path / "model"
    arguments = [*SHORT, "--output", str(folder)]
    assert stop_after_first_checkpoint(arguments, signal.SIGINT, tmp_path) == (130, STOPPED)
    process = run(*arguments)
    assert process.returncode == 0, process.stderr
    assert (folder / WEIGHTS).read_bytes() == (uninterrupted / WEIGHTS).read_bytes()


def test_a_terminated_run_says_in_one_line_how_to_resume(tmp_path: Path) -> None:
    arguments = [*SHORT, "--output", str(tmp_path / "model")]
    assert stop_after_first_checkpoint(arguments, signal.SIGTERM, tmp_path)[1] == STOPPED


def test_a_finished_run_is_not_repeated(tmp_path: Path) -> None:
    first = train(TINY, tmp_path)
    before = (tmp_path / WEIGHTS).stat().st_mtime_ns
    assert train(TINY, tmp_path) == first == read_facts(tmp_path)
    assert (tmp_path / WEIGHTS).stat().st_mtime_ns == before
    assert not list(tmp_path.glob("checkpoint-*"))


def test_rerunning_a_finished_command_says_so_and_takes_only_missing_measurements(
    tmp_path: Path, uninterrupted: Path
) -> None:
    shutil.copytree(uninterrupted, tmp_path, dirs_exist_ok=True)
    tasks: tuple[Task, ...] = ("slm", "slm_sub_tasks")
    *skills, missing = (
        Skill(task=task, split=split, calculator=calculator, outcomes="0")
        for task, calculator, split in product(tasks, (True, False), splits())
    )
    add_skills(tmp_path, skills)
    again = [*SHORT[:-1], "1", "--output", str(tmp_path)]
    measured = run(*again)
    assert measured.stdout.startswith(f"the model in {tmp_path} is finished; --restart")
    [heading, line] = measured.stderr.splitlines()
    assert heading == "measuring on 1 problem per split…"
    assert line.startswith("sub-tasks, micro-SLM (tool: none), unseen structures: ")
    assert {skill.key for skill in read_skills(tmp_path)} >= {missing.key}
    last = run(*again)
    assert last.stderr == "measured already; `train eval` measures again\n"
    assert last.stdout == measured.stdout


def test_a_folder_started_with_other_settings_is_refused(tmp_path: Path) -> None:
    train(TINY, tmp_path)
    with pytest.raises(TrainingError, match=r"other settings: seed \(1 → 2\)"):
        train(TINY.model_copy(update={"seed": 2}), tmp_path)
    again = train(TINY.model_copy(update={"seed": 2}), tmp_path, restart=True)
    assert again.recipe.seed == 2


def begun(folder: Path) -> Path:
    """A folder with a checkpoint of an unfinished run; the path of that checkpoint."""

    class Enough(Exception):
        pass

    def stop(step: int) -> None:
        raise Enough

    with pytest.raises(Enough):
        train(TINY, folder, checkpoint_every=8, on_checkpoint=stop)
    (checkpoint,) = folder.glob("checkpoint-*")
    return checkpoint


def test_a_damaged_checkpoint_is_refused_with_its_name_and_a_remedy(tmp_path: Path) -> None:
    tensors = begun(tmp_path) / "tensors.safetensors"
    data = bytearray(tensors.read_bytes())
    data[-5] ^= 1
    tensors.write_bytes(data)
    with pytest.raises(CorruptCheckpoint, match=r"checkpoint-00000008 is damaged.*--restart"):
        train(TINY, tmp_path)
    train(TINY, tmp_path, restart=True)


def test_a_checkpoint_without_its_state_is_refused(tmp_path: Path) -> None:
    (begun(tmp_path) / "state.json").write_text("{")
    with pytest.raises(CorruptCheckpoint, match="cannot be read"):
        load_checkpoint(tmp_path, TrainingState)


@pytest.mark.parametrize("content", [b"", b"{", b'{"steps": 24}', b"\xff\xfe"])
def test_damaged_facts_of_a_finished_run_are_refused_with_their_path_and_a_remedy(
    tmp_path: Path, content: bytes
) -> None:
    (tmp_path / FACTS).write_bytes(content)
    with pytest.raises(UnreadableModel, match=r"training\.json is damaged.*--restart") as caught:
        train(TINY, tmp_path)
    assert str(tmp_path) in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_a_restart_replaces_damaged_facts(tmp_path: Path) -> None:
    (tmp_path / FACTS).write_text("{")
    assert train(TINY, tmp_path, restart=True) == read_facts(tmp_path)


def test_a_partial_checkpoint_is_ignored(tmp_path: Path) -> None:
    whole = begun(tmp_path)
    shutil.copytree(whole, tmp_path / ".partial-16")
    checkpoint = load_checkpoint(tmp_path, TrainingState)
    assert checkpoint is not None
    assert checkpoint.state.step == 8


def test_too_little_disk_space_is_reported_before_training(tmp_path: Path) -> None:
    with pytest.raises(NotEnoughDisk, match=r"are needed; free some space and resume"):
        require_disk(tmp_path / "not" / "there", 10**15)


@pytest.mark.parametrize("cut_short", ["model", "facts"])
@pytest.mark.slow
def test_a_full_disk_at_the_end_costs_no_step(
    cut_short: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def model(*args: Any, **named: Any) -> None:
        with no_file_larger_than(16):
            export_model(*args, **named)

    def facts(*args: Any) -> None:
        with no_file_larger_than(16):
            write_facts(*args)

    if cut_short == "model":
        monkeypatch.setattr("loopline.trainers.sft.training.export_model", model)
    else:
        monkeypatch.setattr("loopline.trainers.sft.training.write_facts", facts)
    with pytest.raises(NotEnoughDisk, match=r"can't be written \(.*resume with the same command"):
        train(TINY, tmp_path)
    monkeypatch.undo()
    again: list[Progress] = []
    assert train(TINY, tmp_path, on_progress=again.append) == read_facts(tmp_path)
    assert again == []
    assert load_model(tmp_path).context == TINY.context


def test_an_unknown_recipe_is_refused_with_the_known_names() -> None:
    with pytest.raises(UnknownModel, match="'micro-lm'; choose one of: micro-llm, micro-slm"):
        recipe("micro-lm")


def test_minus_h_prints_help_in_plain_text() -> None:
    process = run("-h")
    assert process.returncode == 0
    assert "--checkpoint-every" in process.stdout
    assert "─" not in process.stdout


def test_a_user_s_mistake_prints_one_line_and_sets_the_exit_code(tmp_path: Path) -> None:
    failed = run("micro-lm", "--output", str(tmp_path))
    assert failed.returncode == 2
    assert failed.stderr.startswith("error: there is no recipe for a model 'micro-lm'")
    assert len(failed.stderr.splitlines()) == 1


def test_an_output_that_is_a_file_is_a_one_line_error_too(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    failed = run(*SHORT, "--output", str(tmp_path / "file"))
    assert failed.returncode == 1
    assert len(failed.stderr.splitlines()) == 1


@pytest.mark.parametrize("rate", ["matrix_learning_rate", "learning_rate"])
def test_a_nan_loss_ends_a_training_at_its_last_good_checkpoint(rate: str, tmp_path: Path) -> None:
    """At a very high rate. Depending on the processor, the loss is NaN or only the gradient."""
    endless = TINY.model_copy(update={rate: 1e30, "warmup": 1})
    pattern = r"the (loss|gradient's norm) is nan at step 2, .*recipe tiny .*1\.0e\+30"
    with pytest.raises(TrainingError, match=pattern):
        train(endless, tmp_path, checkpoint_every=1)
    checkpoint = load_checkpoint(tmp_path, TrainingState)
    assert checkpoint is not None
    assert checkpoint.state.step == 1
    assert all(tensor.isfinite().all() for tensor in checkpoint.tensors.values())
    assert read_facts(tmp_path) is None
