"""The policies that are trained: one network in memory, and of each policy its own weights and its
own optimizer. Their weights are put into the network in turn; of adapters that is little, so that
many roles cost not much more than one."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from loopline.trainers.core.network import Network
from loopline.trainers.core.optimizer_state import restore, tensors_of
from loopline.trainers.grpo.settings import GrpoSettings

if TYPE_CHECKING:
    import torch

Weights = dict[str, "torch.Tensor"]
BETAS = (0.9, 0.999)


@dataclass
class _Policy:
    optimizer: torch.optim.Optimizer
    weights: Weights
    """By parameter name; empty while they are in the network."""


class Policies:
    """All policies, which begin with `begins`, or with the network's present weights."""

    def __init__(
        self,
        network: Network,
        names: Sequence[str],
        settings: GrpoSettings,
        begins: Mapping[str, Weights] | None = None,
    ) -> None:
        self.network = network
        self.settings = settings
        present, initial_weights = self._snapshot_weights(), begins or {}
        self._policies = {
            name: _Policy(self._optimizer(), initial_weights.get(name, present)) for name in names
        }
        self._reference = (
            {name: policy.weights for name, policy in self._policies.items()}
            if settings.objective.needs_reference
            else {}
        )
        self._present: str | None = None
        self.activate(names[0])

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._policies)

    def activate(self, name: str) -> torch.optim.Optimizer:
        """Put a policy's weights into the network; returns its optimizer."""
        if name != self._present:
            if self._present is not None:
                self._policies[self._present].weights = self._snapshot_weights()
            self._fill(self._policies[name].weights)
            self._policies[name].weights = {}
            self._present = name
        return self._policies[name].optimizer

    @contextmanager
    def reference(self) -> Generator[None]:
        """In the network, for the time of the block, what its present policy began with. Raises
        KeyError where no divergence from it is asked for."""
        assert self._present is not None
        weights = self._snapshot_weights()
        self._fill(self._reference[self._present])
        try:
            yield
        finally:
            self._fill(weights)

    def tensors(self) -> Weights:
        """Weights and moments of all policies, for a checkpoint."""
        named_tensors: Weights = {}
        for name in self.names:
            optimizer = self.activate(name)
            for key, tensor in tensors_of(self.network.trained(), [optimizer]).items():
                # The next policy's weights are going to be where these are.
                leaves = key.startswith("model.") and len(self.names) > 1
                named_tensors[f"{name}/{key}"] = tensor.clone() if leaves else tensor.contiguous()
        return named_tensors

    def copied(self) -> Weights:
        """The same in the machine's memory, which stay as they are when training goes on."""
        return {name: tensor.to("cpu", copy=True) for name, tensor in self.tensors().items()}

    def restore(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Put back what `tensors` gave."""
        for name in self.names:
            optimizer = self.activate(name)
            prefix = f"{name}/"
            policy_tensors = {
                k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)
            }
            restore(self.network.trained(), [optimizer], policy_tensors)

    def _optimizer(self) -> torch.optim.Optimizer:
        """AdamW; matrices are decayed, biases and norms are not."""
        import torch

        settings, trained = self.settings, [parameter for _, parameter in self.network.trained()]
        return torch.optim.AdamW(
            [
                {
                    "params": [parameter for parameter in trained if parameter.dim() >= 2],
                    "weight_decay": settings.weight_decay,
                },
                {
                    "params": [parameter for parameter in trained if parameter.dim() < 2],
                    "weight_decay": 0.0,
                },
            ],
            lr=settings.learning_rate,
            betas=BETAS,
            fused=True,
        )

    def _snapshot_weights(self) -> Weights:
        return {name: parameter.detach().clone() for name, parameter in self.network.trained()}

    def _fill(self, weights: Mapping[str, torch.Tensor]) -> None:
        import torch

        with torch.no_grad():
            for name, parameter in self.network.trained():
                parameter.copy_(weights[name])
