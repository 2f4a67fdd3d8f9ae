"""LoRA adapters on a model of transformers, another one for each row of a batch.

A linear layer with the weights W computes W x for all rows at once; a row with an adapter gets
(alpha / rank) B A x on top (Hu et al. 2021, arXiv:2106.09685). So rows with other adapters, and
with none, are decoded in one forward pass. Adapters are folders in the format of PEFT.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch.utils.hooks import RemovableHandle

from workers.engines.model_files import check_safetensors, unusable

_TENSOR = re.compile(r"^base_model\.model\.(?P<module>.+)\.lora_(?P<part>[AB])\.weight$")


@dataclass(eq=False, frozen=True)
class Lora:
    """Weights of one adapter, by the name of the linear layer: A [rank, in] and B [out, rank],
    B already scaled."""

    layers: dict[str, tuple[torch.Tensor, torch.Tensor]]


class LoraLayers:
    """Applies adapters to the linear layers of one model. Owned by one thread."""

    def __init__(self, model: Any, device: torch.device) -> None:
        self._device = device
        self._dtype: torch.dtype = model.dtype
        # The linear layers of bitsandbytes are among them: they inherit from this one.
        self._modules: dict[str, torch.nn.Linear] = {
            name: module
            for name, module in model.named_modules()
            if isinstance(module, torch.nn.Linear)
        }
        self._hooks: dict[str, RemovableHandle] = {}
        self._rows: list[tuple[Lora, torch.Tensor | None]] = []
        """Each adapter in the batch with the places of its rows; None is all of them."""

    def read(self, path: str) -> Lora:
        """An adapter for this model. Raises EngineError `bad_request` for one that is not there,
        not safe, not whole, of another model, or of a kind that is not known here."""
        folder = Path(path).expanduser()
        check_safetensors(folder)
        scale = _scale(folder, path)
        try:
            tensors = load_file(folder / "adapter_model.safetensors")
        except (SafetensorError, OSError) as error:
            raise unusable(path, f"adapter_model.safetensors is damaged: {error}") from error
        parts: dict[str, dict[str, torch.Tensor]] = {}
        for name, tensor in tensors.items():
            match = _TENSOR.match(name)
            if match is None or match["module"] not in self._modules:
                raise unusable(path, f"this model has no linear layer for its tensor {name!r}")
            parts.setdefault(match["module"], {})[match["part"]] = tensor
        if not parts:
            raise unusable(path, "it has no weights")
        layers: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}
        for name, pair in parts.items():
            module = self._modules[name]
            if pair.keys() != {"A", "B"}:
                raise unusable(path, f"of {name} it has only one of lora_A and lora_B")
            a, b = pair["A"], pair["B"]
            if a.shape[1] != module.in_features or b.shape != (module.out_features, a.shape[0]):
                raise unusable(
                    path,
                    f"its shapes {tuple(a.shape)} and {tuple(b.shape)} do not fit {name} "
                    f"({module.in_features} to {module.out_features}): it is of another model",
                )
            weight = module.weight
            # A quantized layer's weights are integers; what goes in and comes out is not.
            dtype = weight.dtype if weight.is_floating_point() else self._dtype
            layers[name] = (
                a.to(weight.device, dtype),
                (b * scale).to(weight.device, dtype),
            )
        for name in layers:
            if name not in self._hooks:
                self._hooks[name] = self._modules[name].register_forward_hook(self._hook(name))
        return Lora(layers)

    def use(self, rows: Sequence[Lora | None]) -> None:
        """The adapter of each row of the batches that come now."""
        self._rows = []
        present = {each for each in rows if each is not None}
        for lora in present:
            places = [place for place, each in enumerate(rows) if each is lora]
            all_rows = len(places) == len(rows)
            self._rows.append(
                (lora, None if all_rows else torch.tensor(places, device=self._device))
            )

    def _hook(self, name: str) -> Any:
        def add(_: Any, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
            for lora, places in self._rows:
                pair = lora.layers.get(name)
                if pair is None:
                    continue
                a, b = pair
                if places is None:
                    output += inputs[0] @ a.T @ b.T
                else:
                    output.index_add_(0, places, inputs[0][places] @ a.T @ b.T)

        return add


def _scale(folder: Path, path: str) -> float:
    """What B A is multiplied with."""
    try:
        config: dict[str, Any] = json.loads((folder / "adapter_config.json").read_text())
    except (OSError, ValueError) as error:
        raise unusable(path, f"adapter_config.json cannot be read: {error}") from error
    if config.get("peft_type") != "LORA":
        raise unusable(path, f"it is of the kind {config.get('peft_type')!r}, not LORA")
    unknown = [
        key
        for key in ("use_dora", "rank_pattern", "alpha_pattern", "modules_to_save", "lora_bias")
        if config.get(key)
    ]
    if unknown or config.get("bias", "none") != "none":
        raise unusable(path, f"it uses {', '.join(unknown) or 'bias'}, which is not known here")
    rank, alpha = int(config["r"]), float(config["lora_alpha"])
    return alpha / math.sqrt(rank) if config.get("use_rslora") else alpha / rank
