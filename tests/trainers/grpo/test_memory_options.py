"""Options that save memory compute the same step."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from loopline.trainers.errors import TrainingError
from loopline.trainers.grpo.groups import Group, seal
from loopline.trainers.grpo.learner import Learner
from loopline.trainers.grpo.pipeline import initial_policies
from loopline.trainers.grpo.stream import StepBatch

from .tiny_grpo import load, rollouts, sealing_of, settings_of, write_base


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_base(tmp_path_factory.mktemp("base"))


def step(base: Path, **changes: object) -> tuple[list[torch.Tensor], int]:
    """Gradients of one step, and the bytes that its forward passes kept for the backward ones."""
    loaded = load(base)
    groups: list[Group] = list(seal(rollouts(loaded, 0), sealing_of(loaded)).records)
    settings = settings_of(
        clip=1e9, truncated="keep", objective={"entropy": 0.01, "kl": 0.1}, **changes
    )
    policies = initial_policies(settings, ["shared"], loaded)
    sizes: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        sizes[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        Learner(policies).step(StepBatch(0, tuple(groups), (), 0))
    gradients = [parameter.grad for _, parameter in policies.network.trained()]
    return [gradient for gradient in gradients if gradient is not None], sum(sizes.values())


@pytest.mark.parametrize("share_prefixes", [True, False])
@pytest.mark.parametrize("change", [{"head_chunk": 3}, {"checkpoint_activations": True}])
def test_memory_options_keep_the_gradients_and_lower_peak_memory(
    base: Path, change: dict[str, object], *, share_prefixes: bool
) -> None:
    whole, most = step(base, share_prefixes=share_prefixes)
    again, least = step(base, share_prefixes=share_prefixes, **change)
    assert len(whole) == len(again) > 0
    for first, second in zip(whole, again, strict=True):
        assert torch.allclose(first, second, rtol=1e-4, atol=1e-7)
    assert least < most


@pytest.mark.parametrize("minibatch", [None, 1])
def test_an_offloaded_optimizer_makes_the_same_updates(base: Path, minibatch: int | None) -> None:
    weights: list[dict[str, torch.Tensor]] = []
    for offload in (False, True):
        loaded = load(base)
        groups = tuple(seal(rollouts(loaded, 0), sealing_of(loaded)).records)
        settings = settings_of(offload_optimizer=offload, minibatch=minibatch)
        learner = Learner(initial_policies(settings, ["shared"], loaded))
        for version in range(2):
            learner.step(StepBatch(version, groups, (), 0))
        weights.append(learner.policies.copied())
    assert weights[0].keys() == weights[1].keys()
    for key, tensor in weights[0].items():
        assert torch.allclose(weights[1][key], tensor, rtol=1e-4, atol=1e-5), key


def test_a_model_with_dropout_is_not_checkpointed(base: Path) -> None:
    loaded = load(base)
    loaded.model.config.attention_dropout = 0.1
    with pytest.raises(TrainingError, match="its configuration has attention_dropout"):
        initial_policies(settings_of(checkpoint_activations=True), ["shared"], loaded)


def test_policies_with_8_bit_moments_learn_and_can_be_restored(base: Path) -> None:
    pytest.importorskip("bitsandbytes", reason="needs the extra quantized")
    loaded = load(base)
    groups = tuple(seal(rollouts(loaded, 0), sealing_of(loaded)).records)
    settings = settings_of(optimizer="adamw-8bit", minibatch=1)
    learner = Learner(initial_policies(settings, ["shared"], loaded))
    begins = learner.policies.copied()
    learner.step(StepBatch(0, groups, (), 0))
    first = learner.policies.copied()
    assert any(not torch.equal(first[key], tensor) for key, tensor in begins.items())
    learner.step(StepBatch(1, groups, (), 0))
    second = learner.policies.copied()
    learner.policies.restore(first)
    learner.step(StepBatch(1, groups, (), 0))
    again = learner.policies.copied()
    assert again.keys() == second.keys()
    assert all(torch.equal(again[key], tensor) for key, tensor in second.items())
