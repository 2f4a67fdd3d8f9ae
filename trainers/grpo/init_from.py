"""Initial weights of a policy from the folder of an earlier version of it, a model or an
adapter."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from loopline.trainers.core.network import ADAPTER, Network, base_folder, load_base
from loopline.trainers.errors import TrainingError
from loopline.trainers.grpo.settings import GrpoSettings
from loopline.workers.engines.protocol import EngineError

if TYPE_CHECKING:
    import torch

_SHOWN = 2


def initial_weights(
    networks: Mapping[str, Network], settings: GrpoSettings
) -> dict[str, dict[str, torch.Tensor]]:
    """Initial weights, by policy and parameter name. `networks` are by policy. Raises
    `TrainingError`, also for weights of another architecture, rank, scale or base."""
    weights_by_policy: dict[str, dict[str, torch.Tensor]] = {}
    for policy, begin in settings.init_from.items():
        if policy not in networks:
            continue
        network = networks[policy]
        folder = base_folder(begin.model)
        if network.adapter is None:
            weights = dict(load_base(str(folder), device="cpu").model.named_parameters())
        else:
            weights = _adapter(network, folder, settings)
        weights_by_policy[policy] = _select_trained(network, weights, folder)
    return weights_by_policy


def _adapter(network: Network, folder: Path, settings: GrpoSettings) -> dict[str, torch.Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    from loopline.workers.engines.local.lora_config import read_lora_config

    try:
        network.loaded.check_base_of(str(folder))
        config = read_lora_config(folder, str(folder))
        stored = load_file(folder / ADAPTER)
    except EngineError as error:
        raise TrainingError(str(error)) from error
    except (OSError, SafetensorError) as error:
        raise TrainingError(f"{folder} is not an adapter that can be read: {error}") from error
    wanted = (settings.rank, 2 * settings.rank)
    if (config.r, config.lora_alpha) != wanted:
        raise TrainingError(
            f"{folder} has rank {config.r} and alpha {config.lora_alpha:g}, but rank {wanted[0]} "
            f"and alpha {wanted[1]} are required: pass the --rank of the adapter"
        )
    if config.use_rslora:
        raise TrainingError(
            f"{folder}/adapter_config.json sets use_rslora: its weights are scaled by alpha / "
            "sqrt(rank), but this training scales them by alpha / rank; start from an adapter "
            "without it"
        )
    return {name.replace(".weight", ".default.weight"): tensor for name, tensor in stored.items()}


def _select_trained(
    network: Network, weights: Mapping[str, torch.Tensor], folder: Path
) -> dict[str, torch.Tensor]:
    """Tensors of the trained parameters, in the type and on the device in which they are
    trained."""
    trained = network.trained()
    wrong = [
        name
        for name, parameter in trained
        if name not in weights or weights[name].shape != parameter.shape
    ]
    if wrong:
        raise TrainingError(
            f"{folder} is not an earlier version of a policy of this base: {len(wrong)} of its "
            f"tensors are missing or have another shape, such as {', '.join(wrong[:_SHOWN])}"
        )
    return {
        name: weights[name].detach().to(parameter.device, parameter.dtype)
        for name, parameter in trained
    }
