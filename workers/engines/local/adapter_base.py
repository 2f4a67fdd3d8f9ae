"""Checks that an adapter was trained on the model that it is loaded onto.

Two models of one architecture have the same shapes: an adapter of one loads onto the other without
an error, and generates nonsense. So our trainers record the weights that an adapter was trained on,
as `weights_sha256`: `base_sha256` in the `training.json` next to it, and BASE_KEY in the header of
an adapter for llama.cpp, whose model has the same hash under WEIGHTS_KEY. An adapter without a
recorded base is loaded unchecked, and so is one for a GGUF model without recorded weights.

A whole model can also serve a policy in place of an adapter: other weights of the pool's own model,
as a training of all weights produces them. The pool keeps its model's tokenizer, chat template and
cache shape. So the new model must have the same tokenizer and the same configuration; only its
weights differ.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from loopline.workers.engines.local.model_files import (
    gguf_text,
    local_folder,
    refuse_unreadable,
    unusable_error,
)
from loopline.workers.engines.protocol import EngineError
from loopline.workers.engines.settings import SERVED, ModelSettings

FACTS = "training.json"
WEIGHTS_KEY = "loopline.weights_sha256"
"""Header key of a GGUF model: the hash of the safetensors files that it was made from."""
BASE_KEY = "loopline.base_sha256"
"""Header key of a GGUF adapter: the hash of the safetensors files that it was trained on."""

NO_WHOLE_MODEL = (
    "a whole model cannot replace the model of a vLLM server that is already running: "
    "publish an adapter, let the gpu worker start the server (managed = true), or start the server "
    "with this model"
)

_IRRELEVANT = ("_name_or_path", "architectures", "dtype", "transformers_version", "use_cache")
"""Fields of a configuration that may differ between two models that compute the same."""
_SHOWN = 12
"""Digits of a hash that are shown to a reader to tell two models apart."""


def weights_sha256(folder: Path) -> str:
    """SHA-256 of the names and contents of all safetensors files, sorted by name. It reads all of
    them, which takes seconds for a model of a few gigabytes."""
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*.safetensors")):
        digest.update(f"{path.name}\n".encode())
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()


@dataclass(frozen=True)
class BaseWeights:
    """The files of a loaded model."""

    folder: Path

    @cached_property
    def sha256(self) -> str:
        """Computed on first use: few adapters need it."""
        return weights_sha256(self.folder)


class _Facts(BaseModel):
    """The fields of `training.json` that are used here."""

    model_config = ConfigDict(extra="ignore")

    base_sha256: str | None = Field(default=None, pattern=r"^[0-9a-f]{64}$")


def base_of_adapter(path: str) -> str | None:
    """The hash of the weights that a PEFT folder's adapter was trained on; None if it is not
    recorded. Raises EngineError `bad_request` for a damaged `training.json`."""
    file = Path(path).expanduser() / FACTS
    try:
        return _Facts.model_validate_json(file.read_bytes()).base_sha256
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise unusable_error(
            path, f"{FACTS} cannot be read: {error.strerror}", "adapter"
        ) from error
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = "".join(f" ({key})" for key in first["loc"])
        raise unusable_error(path, f"{FACTS} is wrong{place}: {first['msg']}", "adapter") from error


def gguf_adapter_file(path: str) -> Path:
    """The file of an adapter for llama.cpp: the path itself, or `adapter.gguf` in that folder."""
    file = Path(path).expanduser()
    return file / "adapter.gguf" if file.is_dir() else file


def base_of_gguf_adapter(path: str) -> str | None:
    """Return the base of an adapter for llama.cpp; see `base_of_adapter`. Raises EngineError
    `bad_request` for a file that is missing or damaged."""
    return gguf_text(gguf_adapter_file(path), BASE_KEY, path, "adapter")


def require_base(
    path: str, trained_on: str | None, weights: Callable[[], str | None], model: str
) -> None:
    """Raise EngineError `bad_request` for an adapter at `path` whose recorded base differs from the
    weights of `model`. The weights are hashed only if the adapter records its base."""
    present = weights() if trained_on is not None else None
    if trained_on is None or present is None or trained_on == present:
        return
    raise unusable_error(
        path,
        f"it is an adapter of another base than {model}: it was trained on weights with the hash "
        f"{trained_on[:_SHOWN]}, but this model's weights have {present[:_SHOWN]}. Train one "
        "on this model, or serve the base that it was trained on",
        "adapter",
    )


def require_base_on_disk(settings: ModelSettings, path: str) -> None:
    """Check the base of an adapter, or the tokenizer of a whole model, as an engine of these
    settings would, as far as the files on this machine allow. Raises EngineError `bad_request`."""
    path = str(local_folder(path, "adapter"))
    with refuse_unreadable(path, "adapter"):
        _require_base_of_files(settings, path)


def _require_base_of_files(settings: ModelSettings, path: str) -> None:
    if settings.engine == "torch":
        folder = local_folder(settings.model)
        if folder.is_dir() and holds_whole_model(path):
            require_same_tokenizer(path, folder, settings.model)
        elif folder.is_dir():
            weights = BaseWeights(folder)
            require_base(path, base_of_adapter(path), lambda: weights.sha256, settings.model)
    elif settings.engine in SERVED:
        folder = local_folder(settings.model)
        if holds_whole_model(path):
            if settings.engine == "vllm" and not settings.managed:
                raise unusable_error(path, NO_WHOLE_MODEL)
            if folder.is_dir():
                require_same_tokenizer(path, folder, settings.model)
        elif any(folder.glob("*.safetensors")):
            weights = BaseWeights(folder)
            require_base(path, base_of_adapter(path), lambda: weights.sha256, settings.model)
    elif settings.engine == "llama_cpp":
        model = Path(settings.model).expanduser()
        if model.is_file():
            require_base(
                path,
                base_of_gguf_adapter(path),
                lambda: gguf_text(model, WEIGHTS_KEY, settings.model),
                settings.model,
            )


def model_configuration(folder: Path) -> dict[str, Any]:
    """The fields of `config.json` that determine how a model computes. Raises errors of
    transformers."""
    import transformers

    config: Any = transformers.AutoConfig.from_pretrained(
        folder, local_files_only=True, trust_remote_code=False
    )
    return {key: value for key, value in config.to_dict().items() if key not in _IRRELEVANT}


def holds_whole_model(path: str) -> bool:
    """Whether the folder at `path` contains a model rather than a PEFT adapter."""
    folder = Path(path).expanduser()
    return (folder / "config.json").is_file() and not (folder / "adapter_config.json").exists()


def require_same_tokenizer(path: str, base: Path, model: str) -> None:
    """Raises EngineError `bad_request` unless the model at `path` has the tokenizer of the model in
    the folder `base`, which the user calls `model`."""
    tokenizer, other = (folder / "tokenizer.json" for folder in (base, Path(path).expanduser()))
    try:
        same = tokenizer.read_bytes() == other.read_bytes()
    except OSError as error:
        raise unusable_error(path, f"tokenizer.json cannot be read: {error.strerror}") from error
    if not same:
        raise other_model_error(path, "tokenizer.json", model)


def other_model_error(path: str, file: str, model: str) -> EngineError:
    """The refusal of a model at `path` because of its `file`."""
    return unusable_error(
        path,
        f"its {file} differs from that of {model}: only a model that was trained from that one can "
        "replace it; serve this one in a pool of its own",
    )
