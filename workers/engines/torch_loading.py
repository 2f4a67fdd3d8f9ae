"""Finds a model, refuses what is unsafe or broken, and loads it.

Weights are read from safetensors only; a checkpoint in pickle format is refused before anything
is read, and code that comes with a model is never run. What is missing or damaged is named.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from huggingface_hub import snapshot_download
from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, RepositoryNotFoundError
from safetensors import SafetensorError, safe_open

from workers.engines.protocol import EngineError
from workers.engines.settings import ModelSettings

MICRO_MODELS = Path(__file__).parent.parent / "micro_models"
_MICRO = "micro:"
_HUB_ID = re.compile(r"^[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?$")
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.pkl", "*.ckpt")
_WANTED_FROM_HUB = ["*.safetensors", "*.json", "*.jinja", "merges.txt", "tokenizer.model"]


class TokenizerCodec:
    """A `TextCodec` over a fast tokenizer: special tokens are text like any other."""

    def __init__(self, tokenizer: Any) -> None:
        self._backend = tokenizer.backend_tokenizer

    @property
    def joins(self) -> bool:
        """Whether the texts of single tokens, joined, are the text of all: streams rely on it."""
        ids = self.encode("The answer is 7.")
        return "".join(self.decode([each]) for each in ids) == self.decode(ids)

    def encode(self, text: str) -> list[int]:
        return list(self._backend.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: Sequence[int]) -> str:
        return str(self._backend.decode(list(ids), skip_special_tokens=False))


@dataclass(frozen=True)
class LoadedModel:
    """Weights in memory, with what the decoder needs to know about them."""

    base: str
    model: Any
    tokenizer: Any
    codec: TokenizerCodec
    device: torch.device
    end_ids: frozenset[int]
    max_context: int
    vocabulary: int
    control_tokens: tuple[str, ...]
    """The tokenizer's special tokens, longest first."""


def _control_tokens(tokenizer: Any) -> tuple[str, ...]:
    added = {str(t.content) for t in tokenizer.added_tokens_decoder.values() if t.special}
    names = added.union(map(str, tokenizer.all_special_tokens))
    return tuple(sorted((name for name in names if len(name) > 1), key=len, reverse=True))


def model_name(model: str) -> str:
    """The name for the records: a hub id or micro name as it is, of a folder its last part."""
    if os.path.isdir(os.path.expanduser(model)):
        return Path(model).expanduser().resolve().name
    return model


def load_model(settings: ModelSettings) -> LoadedModel:
    """Read the model into memory. Takes seconds, blocks.

    Raises EngineError: `bad_request` for a model that is not there, not safe or not whole,
    `unavailable` (retryable) if the hub cannot be reached or memory runs out.
    """
    folder = _find_folder(settings)
    _check_files(folder)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    device = _device(settings)
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
        )
        model, info = loaded
        model = model.to(device).eval()
    except torch.OutOfMemoryError as error:
        raise EngineError(
            f"the model {settings.model!r} does not fit into the memory of {device}",
            kind="unavailable",
            retryable=True,
        ) from error
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        raise _unusable(settings.model, " ".join(str(error).split())[:400]) from error
    if info["missing_keys"] or info["mismatched_keys"]:
        missing = sorted(map(str, [*info["missing_keys"], *info["mismatched_keys"]]))
        raise _unusable(
            settings.model,
            f"{len(missing)} tensors are missing or have the wrong shape, such as {missing[0]}",
        )
    if not getattr(tokenizer, "chat_template", None):
        raise _unusable(
            settings.model,
            "its tokenizer has no chat template; take an instruct model or add chat_template.jinja",
        )
    codec = TokenizerCodec(tokenizer)
    if not codec.joins:
        raise _unusable(
            settings.model,
            "its tokenizer writes a token differently alone and behind another (SentencePiece "
            "style); this engine needs a byte-level one, such as Qwen's or Llama 3's",
        )
    own_context = int(model.config.max_position_embeddings)
    return LoadedModel(
        base=model_name(settings.model),
        model=model,
        tokenizer=tokenizer,
        codec=codec,
        device=device,
        end_ids=_end_ids(model, tokenizer),
        max_context=min(own_context, settings.max_context or own_context),
        vocabulary=int(model.config.vocab_size),
        control_tokens=_control_tokens(tokenizer),
    )


def _find_folder(settings: ModelSettings) -> Path:
    model = settings.model
    if model.startswith(_MICRO):
        folder = MICRO_MODELS / model.removeprefix(_MICRO)
        if not _HUB_ID.match(folder.name) or not folder.is_dir():
            shipped = sorted(path.name for path in MICRO_MODELS.glob("*") if path.is_dir())
            raise EngineError(
                f"there is no micro model {model!r}; shipped: "
                f"{', '.join(_MICRO + name for name in shipped) or 'none'}",
                kind="bad_request",
            )
        return folder
    path = Path(model).expanduser()
    if path.is_dir():
        return path
    if path.exists():
        raise _unusable(model, "it is a file; name the folder that holds config.json")
    if not _HUB_ID.match(model):
        raise _unusable(model, "there is no such folder")
    return _download(model, settings.revision)


def _download(model: str, revision: str | None) -> Path:
    """Fetch (or find in the hub's cache) safetensors, configuration and tokenizer: nothing else,
    so that a pickle is not even downloaded."""
    try:
        return Path(snapshot_download(model, revision=revision, allow_patterns=_WANTED_FROM_HUB))
    except GatedRepoError as error:
        raise _unusable(
            model, "its authors ask for consent: accept the terms on the hub and set HF_TOKEN"
        ) from error
    except RepositoryNotFoundError as error:
        raise _unusable(
            model, "there is neither such a folder nor such a model on the hub"
        ) from error
    except (HfHubHTTPError, OSError) as error:
        raise EngineError(
            f"the model {model!r} is neither a folder nor in the hub's cache, and the hub cannot "
            f"be reached ({type(error).__name__}); connect, or name a local folder",
            kind="unavailable",
            retryable=True,
        ) from error


def _check_files(folder: Path) -> None:
    weights = sorted(folder.glob("*.safetensors"))
    if not weights:
        pickles = [path.name for pattern in _PICKLES for path in sorted(folder.glob(pattern))]
        if pickles:
            raise _unusable(
                folder.name,
                f"its weights are in pickle format ({pickles[0]}), which can run any code when it "
                "is read; convert them to safetensors",
            )
        raise _unusable(folder.name, "it has no *.safetensors file")
    for name in ("config.json", "tokenizer.json"):
        if not (folder / name).is_file():
            raise _unusable(folder.name, f"{name} is missing")
    try:
        json.loads((folder / "config.json").read_text())
    except (ValueError, OSError) as error:
        raise _unusable(folder.name, f"config.json cannot be read: {error}") from error
    for path in weights:
        try:
            with safe_open(path, framework="pt"):
                pass
        except (SafetensorError, OSError) as error:
            raise _unusable(
                folder.name, f"{path.name} is damaged ({error}); copy or download it again"
            ) from error


def _device(settings: ModelSettings) -> torch.device:
    wanted = settings.device
    if wanted == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    device = torch.device(wanted)
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise EngineError(
            f"device = {wanted!r}, but torch sees {torch.cuda.device_count()} CUDA devices; use "
            "'auto' or 'cpu'",
            kind="bad_request",
        )
    return device


def _dtype(settings: ModelSettings, device: torch.device) -> Any:
    if settings.dtype != "auto":
        return getattr(torch, settings.dtype)
    return "auto" if device.type == "cuda" else torch.float32


def _end_ids(model: Any, tokenizer: Any) -> frozenset[int]:
    """Every token that ends a completion, by the model's and by the tokenizer's settings."""
    own: Any = getattr(model.generation_config, "eos_token_id", None)
    ids: list[Any] = own if isinstance(own, list) else [own]
    return frozenset(int(each) for each in [*ids, tokenizer.eos_token_id] if each is not None)


def _unusable(model: str, reason: str) -> EngineError:
    return EngineError(f"the model {model!r} cannot be loaded: {reason}", kind="bad_request")
