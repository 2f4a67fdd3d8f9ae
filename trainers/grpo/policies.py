"""The policies that are trained: one network in memory for each base, and for each policy its own
weights and its own optimizer.

To activate a policy is to point the network's parameters to its weights: nothing is copied, and
many roles take no more time than one. Weights that are sharded over processes are copied in place,
each process its part, since FSDP keeps the memory that it gathers from.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from loopline.trainers.core.network import Network
from loopline.trainers.core.optimizers import restore, tensors_of
from loopline.trainers.core.processes import shard_tensors, spread_like
from loopline.trainers.grpo.settings import GrpoSettings

if TYPE_CHECKING:
    import torch

Weights = dict[str, "torch.Tensor"]
BETAS = (0.9, 0.999)


@dataclass
class _Policy:
    network: Network
    optimizer: torch.optim.Optimizer
    weights: Weights
    """Weights by parameter name; empty while the network has them."""
    reference: Weights
    """Initial weights, if a divergence from them is computed; otherwise empty."""
    gradients: Weights = field(default_factory=dict)
    """Gradients put aside by `hold_gradients`."""


class Policies:
    """All policies, starting from `begins`, or from their network's present weights.

    `networks` has an entry for each policy whose base is not that of `network`.
    """

    def __init__(
        self,
        network: Network,
        names: Sequence[str],
        settings: GrpoSettings,
        begins: Mapping[str, Weights] | None = None,
        networks: Mapping[str, Network] | None = None,
    ) -> None:
        self.settings = settings
        self._policies: dict[str, _Policy] = {}
        initial_weights: dict[int, Weights] = {}
        for name in names:
            used = (networks or {}).get(name, network)
            present = initial_weights.setdefault(id(used), _copy_of(used))
            beginning = (begins or {}).get(name, present)
            self._policies[name] = _Policy(
                used,
                self._optimizer(used),
                _copy_of(used, beginning),
                beginning if settings.objective.needs_reference else {},
            )
        self._in_network: dict[int, str] = {}
        self._active = names[0]
        for name in reversed(names):
            self.activate(name)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._policies)

    @property
    def network(self) -> Network:
        """Network with the weights of the most recently activated policy."""
        return self._policies[self._active].network

    @property
    def networks(self) -> tuple[Network, ...]:
        """Networks of all bases."""
        networks = {id(policy.network): policy.network for policy in self._policies.values()}
        return tuple(networks.values())

    @property
    def parameters(self) -> int:
        """Number of parameters of all networks, including those that are not trained."""
        return sum(int(network.whole.num_parameters()) for network in self.networks)

    def trained_parameters(self, name: str) -> int:
        """Number of trained parameters of one policy."""
        return sum(parameter.numel() for _, parameter in self._policies[name].network.trained())

    @property
    def most_trained_parameters(self) -> int:
        """Number of trained parameters of the policy with the most."""
        return max(map(self.trained_parameters, self.names))

    def activate(self, name: str) -> torch.optim.Optimizer:
        """Put a policy's weights into its network; returns its optimizer."""
        policy = self._policies[name]
        _reshard(policy.network)
        before = self._in_network.get(id(policy.network))
        if before != name:
            if before is not None:
                self._policies[before].weights = _current_weights(policy.network)
            _load_weights(policy.network, policy.weights)
            policy.weights = {}
            self._in_network[id(policy.network)] = name
        self._active = name
        return policy.optimizer

    def hold_gradients(self) -> None:
        """Put the gradients of the active policy aside, for `apply_gradients`."""
        self._policies[self._active].gradients = {
            name: parameter.grad
            for name, parameter in self.network.trained()
            if parameter.grad is not None
        }
        for _, parameter in self.network.trained():
            parameter.grad = None

    def apply_gradients(self) -> None:
        """Update every policy whose gradients were put aside."""
        for name, policy in self._policies.items():
            if not policy.gradients:
                continue
            optimizer = self.activate(name)
            for key, parameter in policy.network.trained():
                parameter.grad = policy.gradients.get(key)
            policy.gradients = {}
            optimizer.step()
            optimizer.zero_grad()

    def drop_gradients(self) -> None:
        """Drop the gradients that were put aside."""
        for policy in self._policies.values():
            policy.gradients = {}

    @contextmanager
    def reference(self) -> Generator[None]:
        """Put the initial weights of the active policy into its network while the block runs.
        Raises KeyError if no divergence from them is computed."""
        network = self.network
        weights = _current_weights(network)
        _load_weights(network, self._policies[self._active].reference)
        try:
            yield
        finally:
            _load_weights(network, weights)

    def tensors(self) -> Weights:
        """Weights and moments of all policies, for a checkpoint. If they are sharded over
        processes, every process must call this, and each gets them whole."""
        return {
            key: self.network.gather_parameter(tensor).contiguous()
            for key, tensor in self._named_tensors()
        }

    def copied(self) -> Weights:
        """Copies of weights and moments in the machine's memory, which further training does not
        change. If they are sharded over processes, each copies its part on its device."""
        if self.network.processes.sharded:
            return {key: tensor.clone() for key, tensor in self._named_tensors()}
        return {key: tensor.to("cpu", copy=True) for key, tensor in self._named_tensors()}

    def _named_tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        for name in self.names:
            optimizer = self.activate(name)
            for key, tensor in tensors_of(self.network.trained(), [optimizer]).items():
                yield f"{name}/{key}", tensor

    def restore(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Restore what `tensors` returned."""
        for name in self.names:
            optimizer = self.activate(name)
            prefix = f"{name}/"
            policy_tensors = {
                k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)
            }
            trained = self.network.trained()
            if self.network.processes.sharded:
                policy_tensors = shard_tensors(policy_tensors, trained)
            restore(trained, [optimizer], policy_tensors)

    def _optimizer(self, network: Network) -> torch.optim.Optimizer:
        """AdamW; weight decay applies to matrices, not to biases and norms."""
        import torch

        settings, trained = self.settings, [parameter for _, parameter in network.trained()]
        groups = [
            {
                "params": [parameter for parameter in trained if parameter.dim() >= 2],
                "weight_decay": settings.weight_decay,
            },
            {
                "params": [parameter for parameter in trained if parameter.dim() < 2],
                "weight_decay": 0.0,
            },
        ]
        rate = settings.learning_rate
        if settings.optimizer == "adamw-8bit":
            from loopline.trainers.core.eight_bit_adamw import eight_bit_adamw

            return eight_bit_adamw(groups, lr=rate, betas=BETAS)
        if settings.offload_optimizer:
            from loopline.trainers.core.offloaded_adamw import OffloadedAdamW

            return OffloadedAdamW(groups, lr=rate, betas=BETAS)
        return torch.optim.AdamW(groups, lr=rate, betas=BETAS, fused=True)


def _copy_of(network: Network, weights: Mapping[str, torch.Tensor] | None = None) -> Weights:
    """Copy of `weights`, or of the network's present ones, in the layout of its parameters."""
    import torch

    _reshard(network)
    copies: Weights = {}
    with torch.no_grad():
        for name, parameter in network.trained():
            source = parameter if weights is None else spread_like(weights[name], parameter)
            copies[name] = torch.empty_like(parameter, requires_grad=False).copy_(source)
    return copies


def _current_weights(network: Network) -> Weights:
    """The present weights; copies if FSDP keeps using their memory."""
    if network.processes.sharded:
        return _copy_of(network)
    return {name: parameter.data for name, parameter in network.trained()}


def _reshard(network: Network) -> None:
    """Free the memory into which a pass without gradients has gathered sharded weights: until then
    it takes their place, and it would outlast new weights."""
    if network.processes.sharded:
        for module in network.whole.modules():
            if (reshard := getattr(module, "reshard", None)) is not None:
                reshard()


def _load_weights(network: Network, weights: Mapping[str, torch.Tensor]) -> None:
    import torch

    _reshard(network)
    with torch.no_grad():
        for name, parameter in network.trained():
            if network.processes.sharded:
                parameter.copy_(weights[name])
            else:
                parameter.data = weights[name]
