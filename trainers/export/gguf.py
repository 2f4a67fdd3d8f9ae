"""A model of transformers as a GGUF file, with its tokenizer, for llama.cpp.

It supports Qwen2, Qwen3 and Llama architectures: all that this project trains, and models like
TinyLlama. A model that cannot be converted exactly is refused.

Tensor names and metadata keys follow the GGUF specification, with the `gguf` package of llama.cpp.
"""

from __future__ import annotations

import ctypes
import math
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import safe_open
from transformers import AutoConfig, AutoModelForCausalLM

from loopline.trainers.errors import TrainingError
from loopline.trainers.export.gguf_tokenizer import add_tokenizer, read_json
from loopline.trainers.export.load_check import require_loadable
from loopline.trainers.export.precision import Precision
from loopline.workers.atomic_files import atomic_file
from loopline.workers.engines.local.adapter_base import (
    BASE_KEY,
    WEIGHTS_KEY,
    base_of_adapter,
    require_base,
    weights_sha256,
)
from loopline.workers.engines.local.lora_config import read_lora_config
from loopline.workers.engines.local.model_files import check_safetensors
from loopline.workers.engines.protocol import EngineError
from loopline.workers.installation import install_hint

ARCHITECTURES = {
    "qwen2": gguf.MODEL_ARCH.QWEN2,
    "qwen3": gguf.MODEL_ARCH.QWEN3,
    "llama": gguf.MODEL_ARCH.LLAMA,
}

_HEAD, _EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"

_STORED = {
    Precision.F32: (gguf.GGMLQuantizationType.F32, gguf.LlamaFileType.ALL_F32),
    Precision.F16: (gguf.GGMLQuantizationType.F16, gguf.LlamaFileType.MOSTLY_F16),
    Precision.BF16: (gguf.GGMLQuantizationType.BF16, gguf.LlamaFileType.MOSTLY_BF16),
    Precision.Q8_0: (gguf.GGMLQuantizationType.Q8_0, gguf.LlamaFileType.MOSTLY_Q8_0),
}


def export_gguf(model: Path, output: Path, precision: Precision = Precision.F16) -> None:
    """Write the model in folder `model` to the file `output`, complete or not at all.

    Raises TrainingError for a model that does not exist or cannot be converted exactly, and for
    `q4_k_m` without llama-cpp-python, whose quantizer makes it.
    """
    kind = str(read_json(model / "config.json").get("model_type"))
    if kind not in ARCHITECTURES:
        raise TrainingError(
            f"{model}: models of type {kind!r} cannot be exported; supported types: "
            f"{', '.join(ARCHITECTURES)}"
        )
    with _translate_engine_errors():
        check_safetensors(model)
    config = _configuration(model)
    output.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(output) as partial:
        if precision is Precision.Q4_K_M:
            whole = output.with_name(f"{output.name}.f32")
            try:
                _write(model, config, whole, Precision.F32)
                _quantize(whole, partial)
            finally:
                whole.unlink(missing_ok=True)
        else:
            _write(model, config, partial, precision)
        require_loadable(partial)


def export_gguf_adapter(adapter: Path, base: Path, output: Path) -> None:
    """Write a LoRA in PEFT's format, trained on the model in folder `base`, to the file `output`.

    Raises TrainingError for an adapter that is missing, incomplete, not a plain LoRA, or of another
    model.
    """
    kind = str(read_json(base / "config.json").get("model_type"))
    if kind not in ARCHITECTURES:
        raise TrainingError(f"{base}: only a LoRA of {', '.join(ARCHITECTURES)} can be exported")
    config = _configuration(base).to_dict()
    with _translate_engine_errors():
        settings = read_lora_config(adapter, str(adapter))
        check_safetensors(adapter, "adapter")
        check_safetensors(base)
        base_sha256 = weights_sha256(base)
        require_base(str(adapter), base_of_adapter(str(adapter)), lambda: base_sha256, str(base))
    rank, alpha = settings.r, settings.lora_alpha
    shapes = _shapes(base)
    names = gguf.get_tensor_name_map(ARCHITECTURES[kind], int(config["num_hidden_layers"]))
    output.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(output) as partial:
        writer = gguf.GGUFWriter(partial, gguf.MODEL_ARCH_NAMES[ARCHITECTURES[kind]])
        writer.add_type(gguf.GGUFType.ADAPTER)
        writer.add_string(gguf.Keys.Adapter.TYPE, "lora")
        writer.add_string(BASE_KEY, base_sha256)
        # llama.cpp divides by the rank; rank-stabilized LoRA is scaled by alpha / sqrt(rank).
        scaled = alpha * math.sqrt(rank) if settings.use_rslora else alpha
        writer.add_float32(gguf.Keys.Adapter.LORA_ALPHA, scaled)
        with safe_open(adapter / "adapter_model.safetensors", framework="pt") as weights:
            parts = Counter(name.partition(".lora_")[0] for name in weights.keys())  # noqa: SIM118
            halves = [module for module, count in parts.items() if count != 2]
            if halves or not parts:
                raise TrainingError(
                    f"{adapter}: it has no pair of lora_A and lora_B for "
                    f"{halves[0] if halves else 'any layer'}"
                )
            for name in weights.keys():  # noqa: SIM118 - not a mapping
                module, separator, part = name.removeprefix("base_model.model.").partition(".lora_")
                new = names.get_name(module)
                if not separator or new is None:
                    raise TrainingError(f"{adapter}: GGUF has no place for the tensor {name!r}")
                tensor = weights.get_tensor(name).to(torch.float32)
                height, width = shapes.get(f"{module}.weight", (0, 0))
                wanted = (rank, width) if part == "A.weight" else (height, rank)
                if tuple(tensor.shape) != wanted:
                    raise TrainingError(
                        f"{adapter}: its tensor {name!r} has the shape {tuple(tensor.shape)}, but "
                        f"{base} needs {wanted}: it belongs to another model"
                    )
                if not tensor.isfinite().all():
                    raise TrainingError(
                        f"{adapter}: its tensor {name!r} has numbers that are not finite (NaN or "
                        "infinity)"
                    )
                if kind == "llama" and part == "B.weight":
                    tensor = _permute_heads(f"{module}.weight", tensor, config)
                suffix = "lora_a" if part == "A.weight" else "lora_b"
                writer.add_tensor(f"{new}.weight.{suffix}", tensor.contiguous().numpy())
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()


@contextmanager
def _translate_engine_errors() -> Generator[None]:
    """Report an engine's errors about these files as this command's own."""
    try:
        yield
    except EngineError as error:
        raise TrainingError(str(error)) from error


def _shapes(model: Path) -> dict[str, tuple[int, ...]]:
    """Shape of every tensor of a model, by name."""
    shapes: dict[str, tuple[int, ...]] = {}
    for path in sorted(model.glob("*.safetensors")):
        with safe_open(path, framework="pt") as weights:
            for name in weights.keys():  # noqa: SIM118 - not a mapping
                shapes[name] = tuple(weights.get_slice(name).get_shape())
    return shapes


def _write(model: Path, described: Any, output: Path, precision: Precision) -> None:
    """Write the model in folder `model`, which has this configuration of transformers."""
    config: dict[str, Any] = described.to_dict()
    kind: str = described.model_type
    arch = ARCHITECTURES[kind]
    stored, file_type = _STORED[precision]
    writer = gguf.GGUFWriter(output, gguf.MODEL_ARCH_NAMES[arch])
    _add_shape(writer, config, model)
    writer.add_name(model.resolve().name)
    writer.add_string(WEIGHTS_KEY, weights_sha256(model))
    writer.add_file_type(file_type)
    add_tokenizer(writer, model, int(config["vocab_size"]))
    layers = int(config["num_hidden_layers"])
    names = gguf.get_tensor_name_map(arch, layers)
    wanted = _wanted_shapes(model, described)
    tied = bool(config.get("tie_word_embeddings"))
    for path in sorted(model.glob("*.safetensors")):
        with safe_open(path, framework="pt") as weights:
            for name in weights.keys():  # noqa: SIM118 - not a mapping
                new = names.get_name(name, try_suffixes=(".weight", ".bias"))
                if new is None or name not in wanted:
                    raise TrainingError(f"{path}: GGUF has no place for the tensor {name!r}")
                tensor = weights.get_tensor(name).to(torch.float32)
                if name == _HEAD and tied and torch.equal(tensor, _embedding(model)):
                    continue
                if tuple(tensor.shape) != wanted.pop(name):
                    raise TrainingError(
                        f"{path}: its tensor {name!r} has the shape {tuple(tensor.shape)}, which "
                        "contradicts config.json"
                    )
                if kind == "llama":
                    tensor = _permute_heads(name, tensor, config)
                try:
                    _add_tensor(writer, new, tensor.numpy(), stored, precision)
                except ValueError as error:
                    raise TrainingError(f"{path}: its tensor {name!r} {error}") from error
    if tied:
        # llama.cpp uses the embedding as the head, as transformers does. If the files contain a
        # head anyway, both use that.
        wanted.pop(_HEAD, None)
    if wanted:
        raise TrainingError(
            f"{model}: {len(wanted)} tensors that config.json requires are missing, such as "
            f"{next(iter(wanted))!r}; copy or download the model again"
        )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _embedding(model: Path) -> torch.Tensor:
    """The embedding in float32. Raises TrainingError for a model without one."""
    for path in sorted(model.glob("*.safetensors")):
        with safe_open(path, framework="pt") as weights:
            if _EMBEDDING in weights.keys():  # noqa: SIM118 - not a mapping
                return weights.get_tensor(_EMBEDDING).to(torch.float32)
    raise TrainingError(f"{model}: the tensor {_EMBEDDING!r} is missing")


def _configuration(model: Path) -> Any:
    """The configuration as transformers reads it: with its defaults, and with today's names for
    older ones. Raises TrainingError."""
    config_values = read_json(model / "config.json")
    config_values.pop("quantization_config", None)
    try:
        return AutoConfig.for_model(config_values.pop("model_type"), **config_values)
    except Exception as error:
        raise TrainingError(f"{model}: config.json does not describe a model: {error}") from error


def _wanted_shapes(model: Path, described: Any) -> dict[str, tuple[int, ...]]:
    """Shape of each tensor that transformers would read for this configuration, the head
    included."""
    try:
        with torch.device("meta"):
            empty_model = AutoModelForCausalLM.from_config(described)
    except Exception as error:
        raise TrainingError(f"{model}: config.json does not describe a model: {error}") from error
    return {name: tuple(tensor.shape) for name, tensor in empty_model.state_dict().items()}


def _add_shape(writer: gguf.GGUFWriter, config: dict[str, Any], model: Path) -> None:
    heads = int(config["num_attention_heads"])
    head_size = int(config.get("head_dim") or config["hidden_size"] // heads)
    rope: dict[str, Any] = config.get("rope_parameters") or {}
    if rope.get("rope_type", "default") != "default" or config.get("rope_scaling"):
        raise TrainingError(f"{model}: scaled rotary positions cannot be exported")
    # llama.cpp has one activation for each of these architectures, and they attend to everything.
    activation = config.get("hidden_act", "silu")
    if activation != "silu":
        raise TrainingError(
            f"{model}: hidden_act {activation!r} cannot be exported: llama.cpp would compute this "
            "model with 'silu'"
        )
    if config.get("use_sliding_window") or "sliding_attention" in (config.get("layer_types") or ()):
        raise TrainingError(f"{model}: attention within a sliding window cannot be exported")
    theta = rope.get("rope_theta") or config.get("rope_theta") or 10_000.0
    writer.add_context_length(int(config["max_position_embeddings"]))
    writer.add_embedding_length(int(config["hidden_size"]))
    writer.add_block_count(int(config["num_hidden_layers"]))
    writer.add_feed_forward_length(int(config["intermediate_size"]))
    writer.add_head_count(heads)
    writer.add_head_count_kv(int(config.get("num_key_value_heads") or heads))
    writer.add_key_length(head_size)
    writer.add_value_length(head_size)
    writer.add_rope_dimension_count(head_size)
    writer.add_rope_freq_base(float(theta))
    writer.add_layer_norm_rms_eps(float(config["rms_norm_eps"]))
    writer.add_vocab_size(int(config["vocab_size"]))


def _permute_heads(name: str, tensor: torch.Tensor, config: dict[str, Any]) -> torch.Tensor:
    """Permute Llama's queries and keys: transformers rotates halves, llama.cpp neighbours."""
    heads = int(config["num_attention_heads"])
    if name.endswith(("q_proj.weight", "q_proj.bias")):
        count = heads
    elif name.endswith(("k_proj.weight", "k_proj.bias")):
        count = int(config.get("num_key_value_heads") or heads)
    else:
        return tensor
    return (
        tensor.reshape(count, 2, tensor.shape[0] // count // 2, *tensor.shape[1:])
        .swapaxes(1, 2)
        .reshape(tensor.shape)
        .contiguous()
    )


def _add_tensor(
    writer: gguf.GGUFWriter,
    name: str,
    values: NDArray[np.float32],
    stored: gguf.GGMLQuantizationType,
    precision: Precision,
) -> None:
    """Write a tensor. Raises ValueError for numbers that the precision cannot hold."""
    if not np.isfinite(values).all():
        raise ValueError("has numbers that are not finite (NaN or infinity)")
    if values.ndim < 2 or stored is gguf.GGMLQuantizationType.F32:
        writer.add_tensor(name, values)
        return
    if stored is gguf.GGMLQuantizationType.Q8_0 and values.shape[-1] % 32:
        stored = gguf.GGMLQuantizationType.F16  # rows of Q8_0 come in blocks of 32
    with np.errstate(over="ignore", invalid="ignore"):
        quantized = gguf.quants.quantize(values, stored)
        float_values = gguf.quants.dequantize(quantized, stored)
    if not np.isfinite(float_values).all():
        raise ValueError(
            f"has numbers up to {np.abs(values).max():.6g}, which {precision} cannot hold; "
            f"{Precision.BF16} and {Precision.F32} can"
        )
    writer.add_tensor(name, quantized, raw_dtype=stored)


def _quantize(source: Path, target: Path) -> None:
    try:
        from loopline.workers.engines.llama_cpp.context import begin_listening, last_error, llama
    except ImportError as error:
        raise TrainingError(
            f"q4_k_m needs llama.cpp's quantizer, which is not installed; {install_hint('gguf')}; "
            "or choose q8_0"
        ) from error
    begin_listening()
    parameters = llama.llama_model_quantize_default_params()
    parameters.ftype = llama.LLAMA_FTYPE_MOSTLY_Q4_K_M
    code = llama.llama_model_quantize(
        str(source).encode(), str(target).encode(), ctypes.pointer(parameters)
    )
    if code != 0:
        raise TrainingError(f"llama.cpp could not quantize {source}: {last_error()}")
