"""Loads a model by transformers. Code that comes with a model is never run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import jinja2
import torch
import transformers
from safetensors import SafetensorError

from loopline.agents.records import Message, ToolSpec
from loopline.workers.engines.local.adapter_base import BaseWeights, base_of_adapter, require_base
from loopline.workers.engines.local.model_files import (
    check_files,
    find_folder,
    is_out_of_memory,
    model_name,
    out_of_memory_error,
    unusable_error,
    usable_context,
)
from loopline.workers.engines.protocol import EngineError
from loopline.workers.engines.settings import ModelSettings
from loopline.workers.engines.text.chat_prompt import TextCodec, template_messages, template_tools
from loopline.workers.engines.text.template_habits import (
    EVERYTHING,
    TemplateHabits,
    TemplateRefuses,
    adapt_messages,
    habits_of,
)
from loopline.workers.engines.text.template_options import TemplateValue, unread_option
from loopline.workers.engines.text.tokenizer_codec import make_codec
from loopline.workers.installation import install_hint

if TYPE_CHECKING:
    from llguidance import LLTokenizer


@dataclass(frozen=True)
class LoadedModel:
    """See `loopline.workers.engines.local.backend.Loaded`."""

    base: str
    weights: BaseWeights
    model: Any
    tokenizer: Any
    codec: TextCodec
    device: torch.device
    end_ids: frozenset[int]
    max_context: int
    vocabulary: int
    control_tokens: tuple[str, ...]
    """The tokenizer's special tokens, longest first."""
    template_options: dict[str, TemplateValue] = field(default_factory=dict[str, TemplateValue])
    habits: TemplateHabits = EVERYTHING
    """What its chat template takes."""

    def render(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> str:
        """See `Loaded.render`."""
        try:
            rendered: Any = self.tokenizer.apply_chat_template(
                template_messages(adapt_messages(messages, self.habits), self.control_tokens),
                tools=template_tools(tools, self.control_tokens),
                add_generation_prompt=True,
                tokenize=False,
                **self.template_options,
            )
        except jinja2.TemplateError as error:
            raise ValueError(str(error)) from error
        return str(rendered)

    def grammar_tokenizer(self) -> LLTokenizer:
        """See `Loaded.grammar_tokenizer`."""
        from llguidance.hf import from_tokenizer

        return from_tokenizer(
            self.tokenizer,
            # The logits may be wider than the tokenizer's count, or less wide.
            n_vocab=max(self.vocabulary, len(self.tokenizer)),
            eos_token=sorted(self.end_ids) or None,
        )

    def check_base_of(self, adapter: str) -> None:
        """Raises EngineError `bad_request` for the adapter at this path if it was trained on other
        weights. May read all files of the model."""
        trained_on = base_of_adapter(adapter)
        require_base(adapter, trained_on, lambda: self.weights.sha256, self.base)


def _control_tokens(tokenizer: Any) -> tuple[str, ...]:
    added = {str(t.content) for t in tokenizer.added_tokens_decoder.values() if t.special}
    names = added.union(map(str, tokenizer.all_special_tokens))
    return tuple(sorted((name for name in names if len(name) > 1), key=len, reverse=True))


def load_model(settings: ModelSettings) -> LoadedModel:
    """Read the model into memory. Takes seconds, blocks.

    Raises EngineError: `bad_request` for a model that is not there, not safe or not whole,
    `unavailable` (retryable) if the hub cannot be reached or memory runs out.
    """
    folder = find_folder(settings)
    check_files(folder)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    device = _device(settings)
    quantized = quantization_config(settings, device)
    try:
        # tokenizer.json is taken as it is. AutoTokenizer would pick a class by the model's type,
        # which puts its own pre-tokenizer in the place of the one that the model was trained with.
        tokenizer: Any = transformers.PreTrainedTokenizerFast.from_pretrained(
            folder, local_files_only=True
        )
        loaded: Any = transformers.AutoModelForCausalLM.from_pretrained(
            folder,
            dtype=_dtype(settings, device),
            use_safetensors=True,
            local_files_only=True,
            trust_remote_code=False,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # they are named below
            # Weights are quantized on their way to the device, and stay there.
            **({"quantization_config": quantized, "device_map": {"": device}} if quantized else {}),
        )
        model, info = loaded
        model = (model if quantized else model.to(device)).eval()
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
    if not getattr(tokenizer, "chat_template", None):
        raise unusable_error(
            settings.model,
            "its tokenizer has no chat template; take an instruct model or add chat_template.jinja",
        )
    _check_template_options(tokenizer.chat_template, settings)
    _check_tokenizer(tokenizer.backend_tokenizer, int(model.config.vocab_size), settings.model)
    loaded_model = LoadedModel(
        base=model_name(settings.model),
        weights=BaseWeights(folder),
        model=model,
        tokenizer=tokenizer,
        codec=make_codec(tokenizer.backend_tokenizer, int(model.config.vocab_size), settings.model),
        device=device,
        end_ids=_end_ids(model, tokenizer),
        max_context=usable_context(int(model.config.max_position_embeddings), settings),
        vocabulary=int(model.config.vocab_size),
        control_tokens=_control_tokens(tokenizer),
        template_options=settings.template_options,
    )
    try:
        return replace(loaded_model, habits=habits_of(loaded_model.render))
    except TemplateRefuses as error:
        raise unusable_error(settings.model, str(error)) from error


def _check_template_options(template: str | dict[str, str], settings: ModelSettings) -> None:
    """Raises EngineError for one that the template, or none of several, reads."""
    templates = [template] if isinstance(template, str) else template.values()
    wrong = unread_option(settings.template_options, templates)
    if wrong is not None:
        raise unusable_error(settings.model, wrong)


def _check_tokenizer(backend: Any, rows: int, model: str) -> None:
    """Raises EngineError for a tokenizer of another model: one that writes text in ids that the
    model has no embedding for. Tokens that were added to it do not count: fine-tuned models often
    have one for padding that no prompt holds."""
    ids: dict[str, int] = backend.get_vocab(with_added_tokens=False)
    added: dict[int, Any] = backend.get_added_tokens_decoder()
    beyond = [token for token in ids.values() if token >= rows and token not in added]
    if beyond:
        raise unusable_error(
            model,
            f"its tokenizer writes text in ids up to {max(beyond)}, but its embedding has {rows} "
            "rows (vocab_size in config.json); take the tokenizer.json that belongs to the weights",
        )


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
    """How bitsandbytes is to hold the weights; None for as they are. LLM.int8 (Dettmers et al.
    2022, arXiv:2208.07339) or NF4 with double quantization (QLoRA, 2023, arXiv:2305.14314).

    Raises EngineError `bad_request` without a GPU or without the packages.
    """
    quantization = settings.quantization
    if quantization == "none":
        return None
    if device.type != "cuda":
        raise EngineError(
            f"quantization = {quantization!r} needs a CUDA GPU, but the device is {str(device)!r}; "
            "leave it out, or serve a quantized GGUF file by engine = 'llama_cpp'",
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
        # What bitsandbytes computes in: anything else would be cast at every layer.
        return torch.float16 if settings.quantization == "int8" else torch.bfloat16
    return "auto" if device.type == "cuda" else torch.float32


def _end_ids(model: Any, tokenizer: Any) -> frozenset[int]:
    """Every token that ends a completion, by the model's and by the tokenizer's settings."""
    ends: Any = getattr(model.generation_config, "eos_token_id", None)
    ids: list[Any] = ends if isinstance(ends, list) else [ends]
    return frozenset(int(token) for token in [*ids, tokenizer.eos_token_id] if token is not None)
