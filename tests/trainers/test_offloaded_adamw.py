"""AdamW with its moments in main memory, compared with PyTorch's and with its formula."""

from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from loopline.trainers.core.offloaded_adamw import OffloadedAdamW
from loopline.trainers.core.optimizers import restore, tensors_of

STEPS = 5


def parameters(seed: int) -> list[torch.nn.Parameter]:
    generator = torch.Generator().manual_seed(seed)
    shapes = ((3, 4), (4,), (2, 2))
    return [torch.nn.Parameter(torch.randn(shape, generator=generator)) for shape in shapes]


def take_steps(
    optimizer: torch.optim.Optimizer, trained: list[torch.nn.Parameter], seed: int, count: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    for step in range(count):
        for at, parameter in enumerate(trained):
            gradient = torch.randn(parameter.shape, generator=generator)
            # The second parameter has no gradient at first.
            parameter.grad = None if (step, at) == (0, 1) else gradient
        optimizer.step()


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 1_000),
    rate=st.floats(1e-6, 1e-1),
    decay=st.floats(0, 0.5),
    beta=st.floats(0, 0.999),
)
def test_it_takes_the_same_steps_as_pytorch_s_adamw(
    seed: int, rate: float, decay: float, beta: float
) -> None:
    trained, reference = parameters(seed), parameters(seed)
    kinds = {"lr": rate, "weight_decay": decay, "betas": (beta, 0.999)}
    take_steps(OffloadedAdamW(trained, **kinds), trained, seed, STEPS)  # pyright: ignore[reportArgumentType]
    take_steps(torch.optim.AdamW(reference, **kinds), reference, seed, STEPS)  # pyright: ignore[reportArgumentType]
    for weight, wanted in zip(trained, reference, strict=True):
        assert torch.allclose(weight, wanted, rtol=1e-5, atol=1e-6)


def test_it_follows_the_formula_in_double_precision() -> None:
    weight = torch.nn.Parameter(torch.tensor([1.0, -2.0]))
    optimizer = OffloadedAdamW([weight], lr=0.1, betas=(0.9, 0.99), weight_decay=0.1)
    value, first, second = [1.0, -2.0], [0.0, 0.0], [0.0, 0.0]
    for count, gradient in enumerate(([0.5, -1.0], [0.25, 3.0]), start=1):
        weight.grad = torch.tensor(gradient)
        optimizer.step()
        for at, slope in enumerate(gradient):
            first[at] = 0.9 * first[at] + 0.1 * slope
            second[at] = 0.99 * second[at] + 0.01 * slope**2
            mean, square = first[at] / (1 - 0.9**count), second[at] / (1 - 0.99**count)
            value[at] = value[at] * (1 - 0.1 * 0.1) - 0.1 * mean / (square**0.5 + 1e-8)
        assert weight.tolist() == pytest.approx(value, rel=1e-6)


@pytest.mark.parametrize("begins", [OffloadedAdamW, torch.optim.AdamW])
def test_its_checkpoints_and_adamw_s_are_compatible(begins: type[torch.optim.Optimizer]) -> None:
    goes_on = torch.optim.AdamW if begins is OffloadedAdamW else OffloadedAdamW
    trained, whole = parameters(1), parameters(1)
    before = begins(trained, lr=1e-2)  # pyright: ignore[reportCallIssue]
    take_steps(before, trained, 1, 2)
    named = [(str(at), parameter) for at, parameter in enumerate(trained)]
    tensors = copy.deepcopy(tensors_of(named, [before]))
    after = goes_on(trained, lr=1e-2)  # pyright: ignore[reportCallIssue]
    restore(named, [after], tensors)
    take_steps(after, trained, 2, 2)
    alone = torch.optim.AdamW(whole, lr=1e-2)
    take_steps(alone, whole, 1, 2)
    take_steps(alone, whole, 2, 2)
    for weight, reference in zip(trained, whole, strict=True):
        assert torch.allclose(weight, reference, rtol=1e-5, atol=1e-6)


def test_moments_are_kept_in_main_memory() -> None:
    weight = torch.nn.Parameter(torch.ones(2, dtype=torch.bfloat16))
    optimizer = OffloadedAdamW([weight], lr=0.5, weight_decay=0.0)
    weight.grad = torch.ones(2, dtype=torch.bfloat16)
    optimizer.step()
    state = optimizer.state[weight]
    assert {str(tensor.device) for tensor in state.values()} == {"cpu"}
    assert state["exp_avg"].dtype == torch.float32
    assert weight.tolist() == [0.5, 0.5]
