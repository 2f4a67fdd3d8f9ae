"""AdamW whose moments stay in the machine's memory: this saves 8 of the 16 bytes of GPU memory per
trained weight."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch.optim.optimizer import ParamsT


class OffloadedAdamW(torch.optim.Optimizer):
    """`torch.optim.AdamW` (decoupled weight decay, Loshchilov & Hutter 2019, arXiv:1711.05101),
    computed on the CPU: gradients are copied there tensor by tensor, and new weights are copied
    back.

        p ← p − lr·λ·p;  m ← β₁m + (1 − β₁)g;  v ← β₂v + (1 − β₂)g²
        p ← p − lr · m̂ / (√v̂ + ε),  m̂ = m / (1 − β₁ᵗ),  v̂ = v / (1 − β₂ᵗ)

    The state of a parameter has AdamW's names (`step`, `exp_avg`, `exp_avg_sq`), in float32 and in
    the machine's memory, so their checkpoints are interchangeable. In addition, the CPU has copies
    of the weight and gradient of one tensor at a time.
    """

    state_device = torch.device("cpu")
    """Device on which `loopline.trainers.core.optimizer_state.restore` places the moments."""

    def __init__(
        self,
        params: ParamsT,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
    ) -> None:
        super().__init__(
            params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        )

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """One update; parameters without a gradient stay unchanged."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            parameters: Iterable[torch.nn.Parameter] = group["params"]
            for parameter in parameters:
                if parameter.grad is not None:
                    self._update(parameter, parameter.grad, group)
        return loss

    def _update(
        self, parameter: torch.nn.Parameter, gradient: torch.Tensor, group: dict[str, Any]
    ) -> None:
        here = parameter.detach()
        state: dict[str, torch.Tensor] = self.state[parameter]
        if not state:
            state["step"] = torch.tensor(0.0)
            for name in ("exp_avg", "exp_avg_sq"):
                state[name] = torch.zeros(here.shape, dtype=torch.float32, device="cpu")
        first, second = state["exp_avg"], state["exp_avg_sq"]
        weight = here.to("cpu", torch.float32)
        gradient = gradient.to("cpu", torch.float32)
        decay1, decay2 = group["betas"]
        state["step"] += 1
        count = float(state["step"])
        first.lerp_(gradient, 1 - decay1)
        second.mul_(decay2).addcmul_(gradient, gradient, value=1 - decay2)
        root = second.sqrt().div_((1 - decay2**count) ** 0.5).add_(group["eps"])
        weight.mul_(1 - group["lr"] * group["weight_decay"])
        weight.addcdiv_(first, root, value=-group["lr"] / (1 - decay1**count))
        if weight.data_ptr() != here.data_ptr():
            here.copy_(weight)
