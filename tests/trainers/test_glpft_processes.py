"""GLPFT in two CPU processes: the steps equal those of one, whole or sharded, and when one process
is stopped or killed, the others exit with a reason and lose nothing."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

from loopline.trainers.core.processes import join_processes
from loopline.trainers.data.token_rows import TokenRow
from loopline.trainers.glpft.batches import batch_of, share_of
from loopline.trainers.glpft.pipeline import train
from loopline.trainers.glpft.report import StageFacts, read_facts
from loopline.trainers.glpft.settings import GlpftSettings

from .launched import launched
from .tiny_glpft import DATA, changed

pytestmark = pytest.mark.slow

SCRATCH = changed(method="single", tokens=6_000)


@given(st.lists(st.integers(2, 60), min_size=1, max_size=20), st.integers(1, 4))
def test_processes_share_a_batch_without_loss_and_take_equally_many_micro_batches(
    lengths: list[int], count: int
) -> None:
    rows = [
        TokenRow((number + 1, *[999] * (length - 1)), (False, *[True] * (length - 1)))
        for number, length in enumerate(sorted(lengths))
    ]
    batch = batch_of(rows, 200)
    shares = [share_of(batch, index, count) for index in range(count)]
    assert {len(micro_batches) for micro_batches in shares} == {len(batch.micro_batches)}
    learned = [
        ids[0]
        for micro_batches in shares
        for micro_batch in micro_batches
        for ids, flags in zip(micro_batch.ids, micro_batch.learned, strict=True)
        if any(flags)
    ]
    assert sorted(learned) == [row.ids[0] for row in rows]


def test_a_single_process_needs_no_launcher_and_waits_for_no_other() -> None:
    with join_processes() as processes:
        assert (processes.count, processes.index, processes.is_first) == (1, 0, True)
        assert processes.sum_of(0.1) == 0.1
        processes.wait()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"FSDP_VERSION": "1"}, "set fsdp_version: 2"),
        ({"FSDP_ACTIVATION_CHECKPOINTING": "true"}, "turn it off, and lower --micro-batch-tokens"),
        ({"ACCELERATE_USE_CPU": "false"}, "accelerate found no GPUs for them"),
        ({}, "launch them without FSDP"),
    ],
)
def test_unsupported_launcher_settings_are_refused(
    tmp_path: Path, settings: dict[str, str], message: str
) -> None:
    if "ACCELERATE_USE_CPU" in settings and torch.cuda.is_available():
        pytest.skip("there are GPUs")
    with launched(
        [(SCRATCH, tmp_path / "out")], tmp_path / "said", sharded=True, changed=settings
    ) as started:
        assert ended(started) == [1, 1]
    # The process that is refused first may close the other's connection.
    assert any(message in (tmp_path / f"said/{number}").read_text() for number in range(2))
    assert not (tmp_path / "out").exists()


def curve(folder: Path, name: str) -> list[tuple[int, float]]:
    """One of the curves of a stage as TensorBoard reads it."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events: Any = EventAccumulator(str(folder / "curves/single"))
    events.Reload()
    return [(point.step, point.value) for point in events.Scalars(name)]


def weights(folder: Path) -> dict[str, torch.Tensor]:
    (path,) = (folder / "single").glob("*.safetensors")
    return load_file(path)


def facts(folder: Path) -> StageFacts:
    stage_facts = read_facts(folder / "single")
    assert stage_facts is not None
    return stage_facts


def ended(started: list[BaseProcess]) -> list[int | None]:
    for process in started:
        process.join(timeout=60)
    return [process.exitcode for process in started]


def wait_for_checkpoint(log_folder: Path, step: int) -> None:
    """Wait until the first process reports that it has saved that step."""
    deadline = time.monotonic() + 60
    while (
        not (log_folder / "0").exists()
        or f"checkpoint single {step}\n" not in (log_folder / "0").read_text()
    ):
        assert time.monotonic() < deadline
        time.sleep(0.005)


@dataclass(frozen=True)
class Trained:
    """One training of all weights, and one of an adapter."""

    full: Path
    adapter: Path


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder, trained in this process for a few steps."""
    folder = tmp_path_factory.mktemp("base") / "out"
    train(SCRATCH, DATA, folder)
    return folder / "single"


def full(base: Path) -> GlpftSettings:
    """At a hundred times the published rate, since at that rate so small a model would not move."""
    return changed(
        method="single", tokens=16_000, base=str(base), base_sha256="", size=None, rate=100
    )


def jobs(folder: Path, base: Path) -> list[tuple[GlpftSettings, Path]]:
    full_settings = full(base)
    adapter = full_settings.model_copy(
        update={"tokens": 6_000, "weights": "lora", "rank": 4, "rate": 10}
    )
    return [(full_settings, folder / "full"), (adapter, folder / "adapter")]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory, base: Path) -> Trained:
    """Trained in this process."""
    pytest.importorskip("peft", reason="needs make install")
    folder = tmp_path_factory.mktemp("alone")
    for settings, output in jobs(folder, base):
        train(settings, DATA, output)
    return Trained(folder / "full", folder / "adapter")


@pytest.fixture(scope="module", params=[False, True], ids=["whole", "sharded"])
def together(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, base: Path
) -> tuple[Trained, bool]:
    """The same training in two processes, and whether their weights are sharded."""
    folder = tmp_path_factory.mktemp("together")
    wanted = jobs(folder, base)
    with launched(wanted, folder / "said", sharded=request.param) as started:
        assert ended(started) == [0, 0], [
            (folder / "said" / number).read_text() for number in ("0", "1")
        ]
    return Trained(folder / "full", folder / "adapter"), request.param


def require_same_but_for_rounding(folder: Path, reference_folder: Path) -> None:
    actual, reference = facts(folder), facts(reference_folder)
    assert (actual.steps, actual.tokens, actual.padding) == (
        reference.steps,
        reference.tokens,
        reference.padding,
    )
    assert (actual.parameters, actual.trained_parameters) == (
        reference.parameters, reference.trained_parameters,
    )  # fmt: skip
    assert actual.validation_before == pytest.approx(reference.validation_before, abs=1e-6)
    assert actual.validation_after == pytest.approx(reference.validation_after, abs=2e-4)
    for name in ("loss", "gradient norm", "learning rate"):
        points, wanted = curve(folder, name), curve(reference_folder, name)
        assert [step for step, _ in points] == [step for step, _ in wanted]
        assert [v for _, v in points] == pytest.approx([v for _, v in wanted], rel=1e-3)
    tensors, another = weights(folder), weights(reference_folder)
    assert tensors.keys() == another.keys()
    for name, tensor in another.items():
        assert tensors[name].dtype == tensor.dtype
        assert torch.allclose(tensors[name], tensor, atol=2e-3), name


def test_two_processes_take_the_same_steps_as_one(
    together: tuple[Trained, bool], alone: Trained
) -> None:
    require_same_but_for_rounding(together[0].full, alone.full)
    require_same_but_for_rounding(together[0].adapter, alone.adapter)
    assert not list(together[0].full.glob(".*"))


def test_after_sigkill_of_one_process_the_other_exits_and_a_rerun_has_the_same_weights(
    tmp_path: Path, together: tuple[Trained, bool], base: Path
) -> None:
    whole, sharded = together
    wanted, log_folder = [(full(base), tmp_path / "out")], tmp_path / "said"
    with launched(wanted, log_folder, sharded=sharded, checkpoint_every=2, held_at=4) as started:
        wait_for_checkpoint(log_folder, 4)
        started[1].kill()
        (log_folder / "go").touch()
        assert ended(started) == [1, -signal.SIGKILL]
    assert "process 1 of 2 lost another process" in (log_folder / "0").read_text()
    assert not (tmp_path / "out/single").exists()
    with launched(wanted, log_folder, sharded=sharded) as started:
        assert ended(started) == [0, 0]
    assert facts(tmp_path / "out").losses == facts(whole.full).losses
    actual, expected = weights(tmp_path / "out"), weights(whole.full)
    assert all(torch.equal(actual[name], expected[name]) for name in expected)


def test_ctrl_c_in_one_process_stops_all_at_the_same_step_and_a_rerun_resumes_there(
    tmp_path: Path, alone: Trained, base: Path
) -> None:
    wanted, log_folder = [(full(base), tmp_path / "out")], tmp_path / "said"
    with launched(wanted, log_folder, checkpoint_every=4, held_at=4) as started:
        wait_for_checkpoint(log_folder, 4)
        assert started[1].pid is not None
        os.kill(started[1].pid, signal.SIGINT)
        (log_folder / "go").touch()
        assert ended(started) == [130, 130]
    assert [path.name for path in (tmp_path / "out/checkpoints/single").iterdir()] == [
        "checkpoint-00000005"
    ]
    with launched(wanted, log_folder, sharded=True) as started:
        assert ended(started) == [0, 0]
    require_same_but_for_rounding(tmp_path / "out", alone.full)
