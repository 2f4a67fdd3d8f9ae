"""LoRA adapters on a transformers model, with a separate choice for each row of a batch.

A linear layer with the weights W computes W x for all rows at once; a row with an adapter gets an
additional (alpha / rank) B A x (Hu et al. 2021, arXiv:2106.09685). So rows with different adapters,
or none, are decoded in one forward pass. Adapters are folders in PEFT's format.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch.utils.hooks import RemovableHandle

from loopline.workers.engines.local.lora_config import bad_adapter_error, read_lora_config
from loopline.workers.engines.local.model_files import check_safetensors

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
        # This includes the linear layers of bitsandbytes: they inherit from this class.
        self._modules: dict[str, torch.nn.Linear] = {
            name: module
            for name, module in model.named_modules()
            if isinstance(module, torch.nn.Linear)
        }
        self._hooks: dict[str, RemovableHandle] = {}
        self._rows: list[tuple[Lora, torch.Tensor | None]] = []
        """Each adapter in the batch with the places of its rows; None is all rows."""

    def read(self, path: str) -> Lora:
        """Read an adapter for this model. Raises EngineError `bad_request` for one that is missing,
        unsafe, incomplete, made for another model, or of an unknown kind."""
        folder = Path(path).expanduser()
        check_safetensors(folder, "adapter")
        config = read_lora_config(folder, path)
        file = folder / "adapter_model.safetensors"
        if not file.exists():
            raise bad_adapter_error(
                path, f"it has no {file.name}; give the folder of a LoRA saved by PEFT"
            )
        try:
            tensors = load_file(file)
        except (SafetensorError, OSError) as error:
            raise bad_adapter_error(
                path, f"adapter_model.safetensors is damaged: {error}"
            ) from error
        parts: dict[str, dict[str, torch.Tensor]] = {}
        for name, tensor in tensors.items():
            match = _TENSOR.match(name)
            if match is None or match["module"] not in self._modules:
                raise bad_adapter_error(
                    path,
                    f"the model has no linear layer for its tensor {name!r}: it is for another one",
                )
            parts.setdefault(match["module"], {})[match["part"]] = tensor
        if not parts:
            raise bad_adapter_error(path, "it has no weights")
        layers: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}
        for name, pair in parts.items():
            module = self._modules[name]
            if pair.keys() != {"A", "B"}:
                raise bad_adapter_error(path, f"it has only one of lora_A and lora_B for {name}")
            a, b = pair["A"], pair["B"]
            _check_weights(path, name, config.r, (a, b))
            if a.shape[1] != module.in_features or b.shape != (module.out_features, a.shape[0]):
                raise bad_adapter_error(
                    path,
                    f"its shapes {tuple(a.shape)} and {tuple(b.shape)} do not fit {name} "
                    f"({module.in_features} to {module.out_features}): it is for another model",
                )
            weight = module.weight
            # A quantized layer's weights are integers, but its inputs and outputs are not.
            dtype = weight.dtype if weight.is_floating_point() else self._dtype
            # Scaled before it is rounded: adapters are often saved in 16 bits.
            scaled = b.to(torch.float32) * config.scale
            layers[name] = (a.to(weight.device, dtype), scaled.to(weight.device, dtype))
            if not all(tensor.isfinite().all() for tensor in layers[name]):
                raise bad_adapter_error(
                    path,
                    f"its weights for {name}, times lora_alpha {config.lora_alpha:g} and its "
                    f"scaling, exceed the range of {dtype}",
                )
        for name in layers:
            if name not in self._hooks:
                self._hooks[name] = self._modules[name].register_forward_hook(self._hook(name))
        return Lora(layers)

    def use(self, rows: Sequence[Lora | None]) -> None:
        """Set the adapter of each row in the following batches."""
        self._rows = []
        present = {lora for lora in rows if lora is not None}
        for lora in present:
            places = [place for place, other in enumerate(rows) if other is lora]
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


def _check_weights(path: str, name: str, rank: int, weights: Sequence[torch.Tensor]) -> None:
    for tensor in weights:
        if tensor.ndim != 2 or not tensor.is_floating_point():
            raise bad_adapter_error(
                path, f"its weights for {name} are not matrices of floating-point numbers"
            )
        if rank not in tensor.shape:
            raise bad_adapter_error(
                path,
                f"its weights for {name} have the shape {tuple(tensor.shape)}, but "
                f"adapter_config.json says rank {rank}",
            )
        if not tensor.to(torch.float32).isfinite().all():
            raise bad_adapter_error(
                path, f"its weights for {name} are not finite (NaN or infinity)"
            )
