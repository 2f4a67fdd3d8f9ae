"""Linear layers in 16 bits on a CPU without instructions for that type.

There PyTorch multiplies 16-bit matrices without its fast kernels: on a CPU with AVX2 alone, the
product of a backward pass took 2.8 s, and 0.01 s in float32 ([64, 2048] by [2048, 2048] in
bfloat16, torch 2.13). These layers keep their weights in 16 bits, multiply in float32, and round
the result.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

FEW_ROWS = 16
"""Up to here a forward pass in 16 bits is as fast: converting the weights takes as long as the
product."""


class WideLinear(torch.nn.Linear):
    """See the module docstring."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return _Product.apply(input, self.weight, self.bias)


class _Product(torch.autograd.Function):
    """x Wᵀ + b. Autograd by itself would keep a float32 copy of every W for the backward pass."""

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
    ) -> torch.Tensor:
        """`x` [..., in], `weight` [out, in], `bias` [out]: [..., out]."""
        # Frozen weights, as under an adapter, need no activations.
        ctx.save_for_backward(x if ctx.needs_input_grad[1] else None, weight)
        if x.numel() <= FEW_ROWS * x.shape[-1]:
            return functional.linear(x, weight, bias)
        wide_bias = None if bias is None else bias.float()
        return functional.linear(x.float(), weight.float(), wide_bias).to(weight.dtype)

    @staticmethod
    def backward(
        ctx: Any, *gradients: torch.Tensor
    ) -> tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]:
        x, weight = ctx.saved_tensors
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad
        wide = gradients[0].float()
        rows = wide.reshape(-1, wide.shape[-1])
        of_x = (wide @ weight.float()).to(weight.dtype) if needs_x else None
        of_weight = of_bias = None
        if needs_weight:
            of_weight = (rows.T @ x.reshape(-1, x.shape[-1]).float()).to(weight.dtype)
        if needs_bias:
            of_bias = rows.sum(0).to(weight.dtype)
        return of_x, of_weight, of_bias


def has_fast_products(dtype: torch.dtype) -> bool:
    """Whether this CPU has the instructions that PyTorch's fast kernels (oneDNN) need for matrices
    of a type. True without oneDNN, where nothing is known."""
    if not torch.backends.mkldnn.is_available():
        return True
    mkldnn: Any = torch.ops.mkldnn
    match dtype:
        case torch.bfloat16:
            return mkldnn._is_mkldnn_bf16_supported()
        case torch.float16:
            return mkldnn._is_mkldnn_fp16_supported()
        case _:
            return True


def widen_linears(model: torch.nn.Module) -> None:
    """Make linear layers that would be slow on this CPU `WideLinear`. Others stay as they are."""
    for module in model.modules():
        if type(module) is torch.nn.Linear:
            weight = module.weight
            if weight.device.type == "cpu" and not has_fast_products(weight.dtype):
                module.__class__ = WideLinear
