"""Several whole models of one architecture in one network, chosen separately for each row of a
batch.

The network contains the weights of the model that most rows of a batch use: pointers are exchanged,
nothing is copied. For rows of other models, each layer is computed again with their own weights. So
a batch of one model has no extra cost. A batch of several models reads the weights of each once per
step, like separate batches, while its rows share the cache.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from loopline.workers.engines.local.adapter_base import (
    model_configuration,
    other_model_error,
    require_same_tokenizer,
)
from loopline.workers.engines.local.model_files import (
    check_files,
    refuse_unreadable,
    unusable_error,
)
from loopline.workers.engines.torch.loading import LoadedModel

Layer = Mapping[str, torch.nn.Parameter]
"""The parameters of one layer, by their name in the layer."""


@dataclass(eq=False, frozen=True)
class WholeModel:
    """The weights of one model, by layer name."""

    layers: dict[str, Layer]


def read_whole_model(path: str, base: LoadedModel, original: WholeModel) -> WholeModel:
    """Read a model that can replace `base`, on its device and in its dtype. Takes seconds; may run
    in parallel with the thread that decodes with `base`: `original` are the weights that it was
    loaded with, even if its network now contains others.

    Raises EngineError: `bad_request` for a model that is missing, unsafe, incomplete, or of another
    architecture or tokenizer; `unavailable` if memory runs out.
    """
    folder = Path(path).expanduser()
    check_files(folder)
    require_same_tokenizer(path, base.weights.folder, base.base)
    # Not with transformers' own loading, which changes torch's default dtype for every thread.
    with refuse_unreadable(path):
        if model_configuration(folder) != model_configuration(base.weights.folder):
            raise other_model_error(path, "config.json", base.base)
        tensors: dict[str, torch.Tensor] = {}
        for file in sorted(folder.glob("*.safetensors")):
            tensors |= load_file(file)
        return _place_on_device(path, base, original.layers, tensors)


def _place_on_device(
    path: str, base: LoadedModel, layers: Mapping[str, Layer], tensors: Mapping[str, torch.Tensor]
) -> WholeModel:
    parameters = {
        f"{layer}.{part}": layers[layer][part] for layer in layers for part in layers[layer]
    }
    if not all(parameter.is_floating_point() for parameter in parameters.values()):
        raise unusable_error(path, f"{base.base} has quantized weights, which others can't replace")
    placed: dict[int, torch.nn.Parameter] = {}
    for name, tensor in tensors.items():
        parameter = parameters.get(name)
        if parameter is None:
            raise unusable_error(path, f"{base.base} has no tensor {name!r}: it is another model")
        if tensor.shape != parameter.shape:
            raise unusable_error(
                path,
                f"its {name} has the shape {tuple(tensor.shape)}, but that of {base.base} has "
                f"{tuple(parameter.shape)}: it is another model",
            )
        here = tensor.to(parameter.device, parameter.dtype)
        # Keyed by the place: an embedding that is also the output layer is stored once.
        placed[id(parameter)] = torch.nn.Parameter(here, requires_grad=False)
    for name, parameter in parameters.items():
        if id(parameter) not in placed:
            raise unusable_error(path, f"it has no tensor {name!r}")
    return WholeModel(
        {
            layer: {part: placed[id(parameter)] for part, parameter in parts.items()}
            for layer, parts in layers.items()
        }
    )


def _layers(model: torch.nn.Module) -> dict[str, Layer]:
    layers: dict[str, Layer] = {}
    for name, module in model.named_modules():
        if parts := dict(module.named_parameters(recurse=False)):
            layers[name] = parts
    return layers


class WholeModels:
    """Puts models into one network. Owned by one thread."""

    def __init__(self, model: torch.nn.Module, device: torch.device) -> None:
        self._device = device
        self.original = WholeModel(_layers(model))
        """Weights that the network was loaded with."""
        self._modules = {name: model.get_submodule(name) for name in self.original.layers}
        self._present = self.original
        """The model whose weights are in the network."""
        self._others: list[tuple[WholeModel, torch.Tensor]] = []
        """The other models of the batch, with the places of their rows."""
        self._hooked = False

    def use(self, rows: Sequence[WholeModel | None]) -> None:
        """Set the model of each row in the following batches; None is the network's own."""
        models = [model or self.original for model in rows]
        counts = Counter(models)
        # If several are equally frequent, the present one stays.
        most = max(counts, key=lambda model: (counts[model], model is self._present))
        if most is not self._present:
            for name, module in self._modules.items():
                _set_parameters(module, most.layers[name])
            self._present = most
        self._others = [
            (
                other_model,
                torch.tensor(
                    [place for place, model in enumerate(models) if model is other_model],
                    device=self._device,
                ),
            )
            for other_model in counts
            if other_model is not most
        ]
        if self._others and not self._hooked:
            for name, module in self._modules.items():
                # Before the hooks that add an adapter's part to the output of the row's own model.
                module.register_forward_hook(self._hook(name), prepend=True)
            self._hooked = True

    def _hook(self, name: str) -> Any:
        def replace(
            module: torch.nn.Module, inputs: tuple[torch.Tensor, ...], output: torch.Tensor
        ) -> None:
            for other_model, places in self._others:
                with _swap_parameters(module, other_model.layers[name], self._present.layers[name]):
                    # A call of the module would run this hook again.
                    output.index_copy_(0, places, module.forward(inputs[0][places]))

        return replace


@contextmanager
def _swap_parameters(module: torch.nn.Module, parts: Layer, restored: Layer) -> Generator[None]:
    _set_parameters(module, parts)
    try:
        yield
    finally:
        _set_parameters(module, restored)


def _set_parameters(module: torch.nn.Module, parts: Layer) -> None:
    for name, parameter in parts.items():
        setattr(module, name, parameter)
