"""FSDP: two CPU processes that each hold half of the weights take the same steps as one."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from loopline.trainers.core.processes import Processes
from loopline.trainers.errors import TrainingError
from loopline.trainers.grpo.pipeline import initial_policies, train
from loopline.trainers.grpo.report import Report, read_report
from loopline.trainers.grpo.settings import GrpoSettings

from .launched import launched
from .recorded import record
from .tiny_grpo import data_in, load, rollouts, settings_of, write_base

pytestmark = pytest.mark.timeout(300)

ROLES = ("coder", "tester")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("accelerate", reason="needs make install")
    return write_base(tmp_path_factory.mktemp("sharded") / "base")


@pytest.fixture(scope="module")
def store(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of two agents, with rows that can't be divided evenly."""
    folder = tmp_path_factory.mktemp("sharded") / "store"
    runs = [
        run for version in range(2) for run in rollouts(load(base), version, count=5, agents=ROLES)
    ]
    asyncio.run(record(folder, runs))
    return folder


def settings_with(**changes: object) -> GrpoSettings:
    return settings_of(
        policies="per-role", batch=10, micro_batch_tokens=64, objective={"kl": 0.1}, **changes
    )


def joined(settings: GrpoSettings, store: Path, base: Path, output: Path) -> Report:
    with launched(settings, store, base, output, count=2, sharded=True) as started:
        for process in started:
            process.join()
        errors = [path.read_text() for path in output.parent.glob(f"{output.name}.said*")]
        assert [process.exitcode for process in started] == [0, 0], errors
    report = read_report(output)
    assert report is not None
    return report


@pytest.mark.parametrize(
    "changes",
    [
        {"minibatch": 1},
        {"share_prefixes": False},
        {"weights": "lora", "rank": 2},
    ],
    ids=str,
)
def test_two_processes_that_shard_the_weights_take_the_same_steps_as_one(
    changes: dict[str, object], base: Path, store: Path, tmp_path: Path
) -> None:
    """Includes minibatches with fewer rows than processes, a reference and two policies."""
    settings = settings_with(**changes)
    together = joined(settings, store, base, tmp_path / "two")
    alone = train(settings, data_in(store, load(base)), load(base), tmp_path / "one")
    assert len(together.steps) == len(alone.steps) > 0
    for step, reference in zip(together.steps, alone.steps, strict=True):
        assert step.policies.keys() == reference.policies.keys() == set(ROLES)
        for name in ROLES:
            facts, wanted = step.policies[name], reference.policies[name]
            assert (facts.learned, facts.groups) == (wanted.learned, wanted.groups)
            assert facts.loss == pytest.approx(wanted.loss, abs=1e-6)
            assert facts.gradient_norm == pytest.approx(wanted.gradient_norm, rel=1e-4)
            assert facts.divergence == pytest.approx(wanted.divergence, abs=1e-6)
            assert facts.effective_samples == pytest.approx(wanted.effective_samples, rel=1e-5)
    file = "adapter_model.safetensors" if settings.weights == "lora" else "model.safetensors"
    for name in ROLES:
        weights = [load_file(tmp_path / part / "policies" / name / file) for part in ("two", "one")]
        assert weights[0].keys() == weights[1].keys()
        for key, tensor in weights[1].items():
            assert torch.allclose(weights[0][key], tensor, atol=1e-4)


@pytest.mark.slow
def test_a_killed_training_resumes_to_the_same_weights(
    base: Path, store: Path, tmp_path: Path
) -> None:
    settings = settings_with()
    joined(settings, store, base, tmp_path / "whole")
    with launched(settings, store, base, tmp_path / "killed", count=2, sharded=True, held_at=3):
        pass  # In the second step, whose checkpoint does not exist yet.
    joined(settings, store, base, tmp_path / "killed")
    for name in ROLES:
        whole, killed = (
            load_file(tmp_path / part / "policies" / name / "model.safetensors")
            for part in ("whole", "killed")
        )
        assert all(torch.equal(killed[key], tensor) for key, tensor in whole.items())


def test_options_that_fsdp_does_not_support_are_refused(base: Path) -> None:
    spread = Processes(sharded=True)
    for option in ("head_chunk", "offload_optimizer", "checkpoint_activations"):
        with pytest.raises(TrainingError, match=f"--{option.replace('_', '-')} does not work"):
            initial_policies(settings_with(**{option: 1}), ROLES, load(base), spread)
