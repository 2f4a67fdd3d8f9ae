"""The model and the adapters of `bench soak`: LoRAs with random weights, each of which changes the
model's answers."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from loopline.bench.errors import BenchError, UsageError
from loopline.trainers.errors import TrainingError
from loopline.workers.engines.local.model_files import local_folder
from loopline.workers.engines.protocol import EngineError

SETS = 6
"""Sets of weights: successive versions of an adapter have different ones, and adapters share
them."""

RANK = 32
"""Rank of the adapters, large enough that a leaked version shows in the memory: tenths of a
megabyte for the micro models."""

SPREAD = 0.17
"""Standard deviation of the weights."""

LAYERS = ("self_attn.q_proj", "self_attn.v_proj", "mlp.down_proj")


@dataclass(frozen=True)
class Prepared:
    """Folders of `model` and `adapters` in the engine's format; `damaged` looks like an adapter,
    but is truncated."""

    model: str
    adapters: list[Path]
    damaged: Path


def prepare(engine: str, model: str, scratch: Path) -> Prepared:
    """Create everything in `scratch`. Raises `BenchError`."""
    try:
        folder = local_folder(model)
    except EngineError as error:
        raise UsageError(f"--model: {error}") from error
    if not (folder / "config.json").is_file() or not list(folder.glob("*.safetensors")):
        raise UsageError(
            f"--model {model}: there is no folder with a config.json and *.safetensors"
        )
    adapters = [write_lora(folder, scratch / f"adapter-{seed}", seed) for seed in range(SETS)]
    if engine == "llama_cpp":
        try:
            model_path = str(_as_gguf(folder, adapters, scratch))
        except TrainingError as error:
            raise BenchError(str(error)) from error
    else:
        model_path = str(folder)
    return Prepared(model_path, adapters, _cut(adapters[0], scratch / "damaged"))


def write_lora(model: Path, folder: Path, seed: int) -> Path:
    """Write an adapter in PEFT's format with random weights for the model in `model`; return its
    folder. Raises `BenchError` for a model without the layers that it changes."""
    rng = torch.Generator().manual_seed(seed)
    tensors: dict[str, torch.Tensor] = {}
    for name, (height, width) in sorted(_shapes(model).items()):
        path = f"base_model.model.{name}"
        for part, shape in (("A", (RANK, width)), ("B", (height, RANK))):
            tensors[f"{path}.lora_{part}.weight"] = torch.randn(shape, generator=rng) * SPREAD
    if not tensors:
        raise BenchError(f"{model} has none of the layers {', '.join(LAYERS)}")
    folder.mkdir(parents=True)
    save_file(tensors, folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text(
        json.dumps(
            {
                "peft_type": "LORA",
                "r": RANK,
                "lora_alpha": RANK,
                "bias": "none",
                "target_modules": sorted(layer.rpartition(".")[2] for layer in LAYERS),
            }
        )
    )
    return folder


def _shapes(model: Path) -> dict[str, tuple[int, int]]:
    """Return the shape [out, in] of each linear layer that gets an adapter, by its name."""
    shapes: dict[str, tuple[int, int]] = {}
    for path in model.glob("*.safetensors"):
        with safe_open(path, framework="pt") as weights:
            for name in weights.keys():  # noqa: SIM118 - not a mapping
                if (layer := name.removesuffix(".weight")).endswith(LAYERS):
                    height, width = weights.get_slice(name).get_shape()
                    shapes[layer] = (height, width)
    return shapes


def _as_gguf(folder: Path, adapters: list[Path], scratch: Path) -> Path:
    from loopline.trainers.export.gguf import export_gguf, export_gguf_adapter
    from loopline.trainers.export.precision import Precision

    gguf = scratch / "model.gguf"
    export_gguf(folder, gguf, Precision.F32)
    for adapter in adapters:
        export_gguf_adapter(adapter, folder, adapter / "adapter.gguf")
    return gguf


def _cut(whole: Path, folder: Path) -> Path:
    folder.mkdir()
    for file in whole.iterdir():
        content = file.read_bytes()
        weights = file.suffix in (".safetensors", ".gguf")
        (folder / file.name).write_bytes(content[: len(content) // 2] if weights else content)
    return folder
