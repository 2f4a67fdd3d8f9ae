"""Two CPU processes that train together take the same steps as one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from loopline.agents.records import Trajectory
from loopline.trainers.grpo.pipeline import train
from loopline.trainers.grpo.report import read_report
from loopline.trainers.grpo.settings import GrpoSettings

from .launched import launched
from .recorded import record
from .test_training import spoiled
from .tiny_grpo import data_in, load, rollouts, settings_of, write_base


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("accelerate", reason="needs make install")
    return write_base(tmp_path_factory.mktemp("processes") / "base")


def recorded(store: Path, runs: list[Trajectory]) -> Path:
    asyncio.run(record(store, runs))
    return store


def test_two_processes_take_the_same_steps_as_one(base: Path, tmp_path: Path) -> None:
    """Rows that can't be divided evenly, and minibatches with fewer rows than processes."""
    store = recorded(tmp_path / "store", rollouts(load(base), 0, count=5))
    settings = settings_of(minibatch=1, micro_batch_tokens=64, objective={"kl": 0.1})
    with launched(settings, store, base, tmp_path / "two", count=2) as started:
        for process in started:
            process.join()
        assert [process.exitcode for process in started] == [0, 0]
    alone = train(settings, data_in(store, load(base)), load(base), tmp_path / "one")
    together = read_report(tmp_path / "two")
    assert together is not None
    for step, reference_step in zip(together.steps, alone.steps, strict=True):
        summary, reference_summary = step.policies["shared"], reference_step.policies["shared"]
        assert (summary.learned, summary.groups, summary.ages) == (
            reference_summary.learned,
            reference_summary.groups,
            reference_summary.ages,
        )
        assert summary.loss == pytest.approx(reference_summary.loss, abs=1e-6)
        assert summary.gradient_norm == pytest.approx(reference_summary.gradient_norm, rel=1e-4)
        assert summary.effective_samples == pytest.approx(
            reference_summary.effective_samples, rel=1e-5
        )
        assert summary.ratios == pytest.approx(reference_summary.ratios, rel=1e-5)
    weights = [
        load_file(tmp_path / name / "policies/shared/model.safetensors") for name in ("two", "one")
    ]
    for name, tensor in weights[1].items():
        assert torch.allclose(weights[0][name], tensor, atol=1e-4)


def test_a_nan_loss_in_one_process_ends_both(base: Path, tmp_path: Path) -> None:
    loaded = load(base)
    runs = [run for version in range(2) for run in rollouts(loaded, version)]
    store = recorded(tmp_path / "store", spoiled(runs, 4))
    settings: GrpoSettings = settings_of(staleness=0, objective={"correction": "clip"})
    with launched(settings, store, base, tmp_path / "out", count=2) as started:
        for process in started:
            process.join()
        assert [process.exitcode for process in started] == [7, 7]
    assert "version 1, after step 1, is the last good" in (tmp_path / "out.said0").read_text()
    assert (tmp_path / "out/last-good/shared/model.safetensors").is_file()


@pytest.mark.parametrize("minibatch", [None, 1])
def test_the_last_good_version_is_kept_under_a_launcher_that_kills_all_once_one_has_ended(
    minibatch: int | None, base: Path, tmp_path: Path
) -> None:
    """Even if the first process has to return to a checkpoint."""
    loaded = load(base)
    runs = [run for version in range(2) for run in rollouts(loaded, version)]
    store = recorded(tmp_path / "store", spoiled(runs, 4))
    settings = settings_of(staleness=0, minibatch=minibatch, objective={"correction": "clip"})
    with launched(settings, store, base, tmp_path / "out", count=2) as started:
        kill_all_once_one_has_ended(started)
    assert (tmp_path / "out/last-good/shared/model.safetensors").is_file()


def kill_all_once_one_has_ended(started: Sequence[BaseProcess]) -> None:
    """As launchers do, although launchers wait half a minute first."""
    wait([process.sentinel for process in started])
    for process in started:
        process.kill()
        process.join()
