"""AdamW with 8-bit moments, compared with PyTorch's; and its state in a checkpoint."""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from loopline.trainers.core.eight_bit_adamw import eight_bit_adamw
from loopline.trainers.core.optimizers import restore, tensors_of
from loopline.trainers.errors import TrainingError

SHAPES = ((96, 64), (8, 8))
"""The second one is small and keeps moments in float32."""
RATE = 1e-2
BETAS = (0.9, 0.999)


def parameters(seed: int) -> list[torch.nn.Parameter]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.nn.Parameter(torch.randn(shape, generator=generator)) for shape in SHAPES]


def optimizer_of(trained: Iterable[torch.nn.Parameter]) -> torch.optim.Optimizer:
    pytest.importorskip("bitsandbytes", reason="needs the extra quantized")
    return eight_bit_adamw([{"params": list(trained), "weight_decay": 0.1}], RATE, BETAS)


def take_steps(
    optimizer: torch.optim.Optimizer, trained: list[torch.nn.Parameter], first: int, count: int
) -> None:
    for step in range(first, first + count):
        generator = torch.Generator().manual_seed(step)
        for parameter in trained:
            parameter.grad = torch.randn(parameter.shape, generator=generator)
        optimizer.step()


def test_its_steps_are_close_to_adamw_s_and_its_moments_a_quarter_as_large() -> None:
    trained, reference = parameters(1), parameters(1)
    begins = copy.deepcopy(reference)
    optimizer = optimizer_of(trained)
    whole = torch.optim.AdamW(reference, lr=RATE, betas=BETAS, weight_decay=0.1)
    take_steps(optimizer, trained, 0, 10)
    take_steps(whole, reference, 0, 10)
    for weight, wanted, begin in zip(trained, reference, begins, strict=True):
        assert (weight - wanted).norm() < 0.05 * (wanted - begin).norm()
    assert torch.allclose(trained[1], reference[1], rtol=1e-4, atol=1e-5)

    def size(kind: torch.optim.Optimizer, parameter: torch.nn.Parameter) -> int:
        named = tensors_of([("w", parameter)], [kind])
        return sum(tensor.nbytes for key, tensor in named.items() if key.startswith("optimizer."))

    assert size(optimizer, trained[0]) < 0.3 * size(whole, reference[0])


def test_a_training_restored_from_a_file_gives_the_same_weights(tmp_path: Path) -> None:
    trained, alone = parameters(2), parameters(2)
    before, through = optimizer_of(trained), optimizer_of(alone)
    take_steps(before, trained, 0, 3)
    named = [(str(at), parameter) for at, parameter in enumerate(trained)]
    # The file format refuses tensors that share memory.
    save_file(tensors_of(named, [before]), tmp_path / "checkpoint.safetensors")
    others = parameters(3)
    after = optimizer_of(others)
    named = [(str(at), parameter) for at, parameter in enumerate(others)]
    restore(named, [after], load_file(tmp_path / "checkpoint.safetensors"))
    take_steps(after, others, 3, 3)
    take_steps(through, alone, 0, 6)
    assert all(torch.equal(*pair) for pair in zip(others, alone, strict=True))


def test_a_missing_package_is_reported_with_the_extra_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "bitsandbytes.optim", raising=False)
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    with pytest.raises(TrainingError, match=r"needs the package bitsandbytes.*quantized"):
        eight_bit_adamw([{"params": parameters(1)}], RATE, BETAS)
