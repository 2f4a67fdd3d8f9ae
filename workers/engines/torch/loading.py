"""Loads a model with transformers. Code that comes with a model is never run."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import torch
import transformers
from safetensors import SafetensorError

from loopline.workers.engines.local.adapter_base import BaseWeights, base_of_adapter, require_base
from loopline.workers.engines.local.model_files import (
    check_files,
    find_folder,
    is_out_of_memory,
    out_of_memory_error,
    unusable_error,
)
from loopline.workers.engines.local.model_text import ModelText, make_text, read_tokenizer
from loopline.workers.engines.protocol import EngineError
from loopline.workers.engines.settings import ModelSettings
from loopline.workers.engines.torch.wide_linear import widen_linears
from loopline.workers.installation import install_hint


@dataclass(frozen=True, kw_only=True)
class LoadedModel(ModelText):
    """See `loopline.workers.engines.local.backend.Loaded`."""

    weights: BaseWeights
    model: Any
    device: torch.device

    def check_base_of(self, adapter: str) -> None:
        """Raises EngineError `bad_request` if the adapter at this path was trained on other
        weights. May read all files of the model."""
        trained_on = base_of_adapter(adapter)
        require_base(adapter, trained_on, lambda: self.weights.sha256, self.base)


def load_model(settings: ModelSettings) -> LoadedModel:
    """Read the model into memory. Blocks for seconds.

    Raises EngineError: `bad_request` for a model that is missing, unsafe or incomplete,
    `unavailable` (retryable) if the hub cannot be reached or memory runs out.
    """
    folder = find_folder(settings)
    check_files(folder)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    device = _device(settings)
    quantized = quantization_config(settings, device)
    try:
        tokenizer = read_tokenizer(folder)
        loaded: Any = transformers.AutoModelForCausalLM.from_pretrained(
            folder,
            dtype=_dtype(settings, device),
            use_safetensors=True,
            local_files_only=True,
            trust_remote_code=False,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # the error below lists them
            # Weights are quantized while they move to the device, and stay there.
            **({"quantization_config": quantized, "device_map": {"": device}} if quantized else {}),
        )
        model, info = loaded
        model = (model if quantized else model.to(device)).eval()
        widen_linears(model)
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        if is_out_of_memory(error):
            raise out_of_memory_error(settings.model, error) from error
        raise unusable_error(settings.model, " ".join(str(error).split())[:400]) from error
    if info["missing_keys"] or info["mismatched_keys"]:
        missing = sorted(map(str, [*info["missing_keys"], *info["mismatched_keys"]]))
        raise unusable_error(
            settings.model,
            f"{len(missing)} tensors are missing or have the wrong shape, such as {missing[0]}",
        )
    ends: Any = getattr(model.generation_config, "eos_token_id", None)
    text = make_text(
        settings,
        tokenizer,
        vocabulary=int(model.config.vocab_size),
        context=int(model.config.max_position_embeddings),
        ends=ends if isinstance(ends, list) else [ends],
    )
    return LoadedModel(**vars(text), weights=BaseWeights(folder), model=model, device=device)


def _device(settings: ModelSettings) -> torch.device:
    name = settings.device
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    device = torch.device(name)
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise EngineError(
            f"device = {name!r}, but torch sees {torch.cuda.device_count()} CUDA devices; use "
            "'auto' or 'cpu'",
            kind="bad_request",
        )
    return device


def quantization_config(settings: ModelSettings, device: torch.device) -> Any:
    """The bitsandbytes configuration for the weights; None leaves them unchanged. LLM.int8
    (Dettmers et al. 2022, arXiv:2208.07339) or NF4 with double quantization (QLoRA, 2023,
    arXiv:2305.14314).

    Raises EngineError `bad_request` without a GPU or without the packages.
    """
    quantization = settings.quantization
    if quantization == "none":
        return None
    if device.type != "cuda":
        raise EngineError(
            f"quantization = {quantization!r} needs a CUDA GPU, but the device is {str(device)!r}; "
            "leave it out, or serve a quantized GGUF file with engine = 'llama_cpp'",
            kind="bad_request",
        )
    absent = [name for name in ("bitsandbytes", "accelerate") if find_spec(name) is None]
    if absent:
        raise EngineError(
            f"quantization = {quantization!r} needs a package that is not installed "
            f"({', '.join(absent)}); {install_hint('quantized')}",
            kind="bad_request",
        )
    if quantization == "int8":
        return transformers.BitsAndBytesConfig(load_in_8bit=True)
    return transformers.BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.bfloat16,
    )


def _dtype(settings: ModelSettings, device: torch.device) -> Any:
    if settings.dtype != "auto":
        return getattr(torch, settings.dtype)
    if settings.quantization != "none":
        # The type in which bitsandbytes computes: any other would be cast at every layer.
        return torch.float16 if settings.quantization == "int8" else torch.bfloat16
    return "auto" if device.type == "cuda" else torch.float32
