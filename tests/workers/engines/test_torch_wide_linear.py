"""Linear layers in 16 bits on CPUs without instructions for them: the same results, much faster."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch

from loopline.workers.engines.settings import ModelSettings
from loopline.workers.engines.torch import wide_linear
from loopline.workers.engines.torch.loading import load_model
from loopline.workers.engines.torch.wide_linear import FEW_ROWS, WideLinear, widen_linears

ROUNDING = {torch.bfloat16: 2**-8, torch.float16: 2**-11}
"""Largest relative error of one rounding."""


def is_float32(dtype: torch.dtype) -> bool:
    return dtype == torch.float32


def is_any(dtype: torch.dtype) -> bool:
    return True


@pytest.fixture
def _slow_cpu(monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    monkeypatch.setattr(wide_linear, "has_fast_products", is_float32)


@pytest.mark.usefixtures("_slow_cpu")
@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(24,), (FEW_ROWS, 24), (2, FEW_ROWS, 24)])
def test_a_layer_and_its_gradients_are_the_exact_ones_rounded_once(
    dtype: torch.dtype, bias: bool, shape: tuple[int, ...]
) -> None:
    torch.manual_seed(0)
    layer = torch.nn.Linear(24, 12, bias=bias).to(dtype)
    exact = copy.deepcopy(layer).double()
    model = torch.nn.Sequential(layer)
    widen_linears(model)
    assert isinstance(layer, WideLinear)
    x = torch.randn(shape).to(dtype).requires_grad_()
    exact_x = x.detach().double().requires_grad_()
    output, exact_output = layer(x), exact(exact_x)
    gradient = torch.randn(output.shape).to(dtype)
    output.backward(gradient)
    exact_output.backward(gradient.double())
    pairs = [(output, exact_output), (x.grad, exact_x.grad)]
    pairs += [
        (mine.grad, right.grad)
        for mine, right in zip(layer.parameters(), exact.parameters(), strict=True)
    ]
    for value, right in pairs:
        assert value is not None
        assert right is not None
        assert value.dtype == dtype
        # Products that cancel out leave the float32 sum's own rounding.
        torch.testing.assert_close(value.double(), right, rtol=ROUNDING[dtype], atol=1e-4)


@pytest.mark.usefixtures("_slow_cpu")
def test_frozen_weights_get_no_gradient() -> None:
    layer = torch.nn.Linear(24, 12).to(torch.bfloat16).requires_grad_(False)
    widen_linears(layer)
    x = torch.randn(40, 24).to(torch.bfloat16).requires_grad_()
    layer(x).sum().backward()
    assert x.grad is not None
    assert layer.weight.grad is None
    assert layer.bias.grad is None


@pytest.mark.usefixtures("_slow_cpu")
def test_a_loaded_model_has_them_only_in_16_bits(tiny_model: Path) -> None:
    for dtype, wide in (("bfloat16", True), ("float32", False)):
        loaded = load_model(
            ModelSettings.model_validate(
                {"engine": "torch", "model": str(tiny_model), "dtype": dtype, "device": "cpu"}
            )
        )
        assert isinstance(loaded.model.lm_head, WideLinear) == wide
        assert loaded.model.lm_head.weight is loaded.model.model.embed_tokens.weight


def test_layers_that_are_fast_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wide_linear, "has_fast_products", is_any)
    layer = torch.nn.Linear(24, 12).to(torch.bfloat16)
    widen_linears(layer)
    assert type(layer) is torch.nn.Linear
