"""Finds the files of a model, and refuses unsafe or broken ones.

Weights are safetensors or GGUF; a checkpoint in pickle format is refused before anything is read.
Errors name the missing or damaged file.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, TypeVar

import httpx2
from huggingface_hub import constants, snapshot_download
from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError
from safetensors import SafetensorError, safe_open

from loopline.workers.engines.local.gguf_header import DamagedHeader, check_header, read_header
from loopline.workers.engines.openai.proxy import ProxyUnusable, proxy_for
from loopline.workers.engines.protocol import EngineError
from loopline.workers.engines.settings import ModelSettings

MIN_CONTEXT = 8
"""Tokens; also the minimum of the setting `max_context`."""
Weights = Literal["model", "adapter"]
T = TypeVar("T")
MICRO_MODELS = Path(__file__).parents[2] / "micro_models"
_MICRO = "micro:"
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.pkl", "*.ckpt")
_TEXT_FROM_HUB = ["*.json", "*.jinja", "merges.txt", "tokenizer.model"]
_WANTED_FROM_HUB = ["*.safetensors", *_TEXT_FROM_HUB]


def model_name(model: str) -> str:
    """The name for the records: a hub id or micro name unchanged, or the last part of a path."""
    path = Path(os.path.expanduser(model))
    return path.resolve().name if path.exists() else model


def find_folder(settings: ModelSettings) -> Path:
    """The folder with the model's config.json, fetched from the hub if necessary. Raises
    EngineError."""
    return _find_folder(settings, _WANTED_FROM_HUB)


def find_text_folder(settings: ModelSettings) -> Path:
    """Return the folder as `find_folder` does, but without fetching the weights."""
    return _find_folder(settings, _TEXT_FROM_HUB)


def _find_folder(settings: ModelSettings, wanted: list[str]) -> Path:
    model = settings.model
    path = local_folder(model)
    if path.is_dir():
        return path
    if path.exists():
        raise unusable_error(model, "it is a file; give the folder that contains config.json")
    if not _HUB_ID.fullmatch(model):
        raise unusable_error(model, "there is no such folder")
    return _download(model, settings.revision, wanted)


def is_on_hub(settings: ModelSettings) -> bool:
    """Whether the model is a name on the hub rather than a path or micro model on this machine."""
    if settings.engine not in ("torch", "llama_cpp") or settings.model.startswith(_MICRO):
        return False
    return not Path(os.path.expanduser(settings.model)).exists()


def fetch(settings: ModelSettings) -> Path:
    """Return the path of a model's files, fetched from the hub if necessary. Raises EngineError."""
    return (find_gguf if settings.engine == "llama_cpp" else find_folder)(settings)


def local_folder(model: str, what: Weights = "model") -> Path:
    """Return the folder of a path or of a micro model's name. Raises EngineError for a micro model
    that is not shipped, or the home of a user that does not exist."""
    if not model.startswith(_MICRO):
        try:
            return Path(model).expanduser()
        except RuntimeError as error:
            raise unusable_error(
                model, "this machine has no such user; give the path of the folder", what
            ) from error
    name = model.removeprefix(_MICRO)
    shipped = sorted(path.name for path in MICRO_MODELS.glob("*") if path.is_dir())
    if name not in shipped:
        raise EngineError(
            f"there is no micro model {model!r}; shipped: "
            f"{', '.join(_MICRO + name for name in shipped) or 'none'}",
            kind="bad_request",
        )
    return MICRO_MODELS / name


def find_gguf(settings: ModelSettings) -> Path:
    """The GGUF file that the settings specify. Raises EngineError."""
    model = settings.model
    path = Path(os.path.expanduser(model))
    if path.is_dir():
        files = sorted(path.glob("*.gguf"))
        if len(files) != 1:
            raise unusable_error(
                model,
                f"the folder has {len(files)} *.gguf files; give the path of one. To convert a "
                "model of ours: train export --gguf",
            )
        path = files[0]
    elif not path.is_file():
        repository, _, name = model.rpartition("/")
        if not name.endswith(".gguf") or not _HUB_ID.fullmatch(repository):
            raise unusable_error(
                model,
                "there is no such file; llama_cpp takes a GGUF file, or owner/repository/file.gguf "
                "on the hub",
            )
        path = _download(repository, settings.revision, [name]) / name
    check_gguf(path, model)
    return path


def usable_context(bound: int, settings: ModelSettings) -> int:
    """Most tokens of a prompt plus its answer: the model's own limit, or less if set. Raises
    EngineError for a model whose limit leaves no room for both."""
    if bound < MIN_CONTEXT:
        raise unusable_error(
            settings.model,
            f"its files state a context of {bound} tokens (max_position_embeddings in config.json, "
            f"context_length in a GGUF header), but the minimum is {MIN_CONTEXT}",
        )
    return min(bound, settings.max_context or bound)


def check_gguf(path: Path, name: str, what: Weights = "model") -> None:
    """Raises EngineError if there is no such file, or if it would crash llama.cpp."""
    _read_gguf(check_header, path, name, what)


def gguf_text(path: Path, key: str, name: str, what: Weights = "model") -> str | None:
    """A text in the header of a file; None if it lacks the key. Raises EngineError if there is no
    such file, or its header is damaged."""
    value = _read_gguf(read_header, path, name, what).get(key.encode())
    return value.decode(errors="replace") if isinstance(value, bytes) else None


def _read_gguf(read: Callable[[Path], T], path: Path, name: str, what: Weights) -> T:
    try:
        return read(path)
    except OSError as error:
        raise unusable_error(name, f"{path.name} cannot be read: {error.strerror}", what) from error
    except DamagedHeader as error:
        raise unusable_error(name, str(error), what) from error


def _download(model: str, revision: str | None, patterns: list[str]) -> Path:
    """Fetch the files that match these patterns (or find them in the hub's cache), and no others,
    so that a pickle is not even downloaded."""
    try:
        return Path(snapshot_download(model, revision=revision, allow_patterns=patterns))
    except GatedRepoError as error:
        raise unusable_error(
            model, "its authors require consent: accept the terms on the hub and set HF_TOKEN"
        ) from error
    except RepositoryNotFoundError as error:
        raise unusable_error(
            model, "there is no such folder here, and no such model on the hub"
        ) from error
    except RevisionNotFoundError as error:
        raise unusable_error(
            model, f"it has no revision {revision!r} on the hub: give a branch, tag or commit of it"
        ) from error
    except (httpx2.HTTPError, OSError, ImportError, ValueError) as error:
        # With an unusable proxy the hub's client can't be made, even to look into its cache.
        try:
            proxy_for(constants.ENDPOINT)
        except ProxyUnusable as unusable:
            message = f"the model {model!r} can't be fetched from the hub: {unusable}"
            raise EngineError(message, kind="bad_request") from error
        if not isinstance(error, httpx2.HTTPError | OSError):
            raise
        raise EngineError(
            f"the model {model!r} is neither a folder nor in the hub's cache, and the hub cannot "
            f"be reached ({type(error).__name__}); connect, or give a local folder",
            kind="unavailable",
            retryable=True,
        ) from error


def check_files(folder: Path) -> None:
    """Raises EngineError unless the folder contains a complete model in a safe format."""
    check_safetensors(folder)
    for name in ("config.json", "tokenizer.json"):
        if not (folder / name).is_file():
            raise unusable_error(folder.name, f"{name} is missing")
    try:
        json.loads((folder / "config.json").read_text())
    except (ValueError, RecursionError, OSError) as error:
        raise unusable_error(folder.name, f"config.json cannot be read: {error}") from error


def check_safetensors(folder: Path, what: Weights = "model") -> None:
    """Raises EngineError for a folder without weights, with pickles, or with damaged weights."""
    if not folder.is_dir():
        raise unusable_error(folder.name, "there is no such folder", what)
    weights = sorted(folder.glob("*.safetensors"))
    if not weights:
        pickles = [path.name for pattern in _PICKLES for path in sorted(folder.glob(pattern))]
        if pickles:
            raise unusable_error(
                folder.name,
                f"its weights are in pickle format ({pickles[0]}), which can run any code when it "
                "is read; convert them to safetensors",
                what,
            )
        raise unusable_error(folder.name, "it has no *.safetensors file", what)
    for path in weights:
        try:
            with safe_open(path, framework="pt"):
                pass
        except (SafetensorError, OSError) as error:
            if is_out_of_memory(error):
                raise out_of_memory_error(folder.name, error) from error
            raise unusable_error(
                folder.name, f"{path.name} is damaged ({error}); copy or download it again", what
            ) from error


@contextmanager
def refuse_unreadable(model: str, what: Weights = "model") -> Generator[None]:
    """Turn any failure of a library on untrusted files into a refusal of the model: a division by a
    size of zero, an invalid template, a number that is a word, a folder without permission."""
    try:
        yield
    except EngineError:
        raise
    except Exception as error:
        if is_out_of_memory(error):
            raise out_of_memory_error(model, error) from error
        reason = " ".join(str(error).split())[:400]
        if isinstance(error, OSError) and error.errno is not None:
            raise unusable_error(model, f"its files cannot be read ({reason})", what) from error
        reason = f"{type(error).__name__}: {reason}"
        raise unusable_error(model, f"its files are damaged ({reason})", what) from error


def unusable_error(name: str, reason: str, what: Weights = "model") -> EngineError:
    """The refusal of a model, or of an adapter, that the user calls `name`."""
    return EngineError(f"the {what} {name!r} cannot be loaded: {reason}", kind="bad_request")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out. Some libraries raise a plain RuntimeError or OSError then, which is
    recognized by its text."""
    reason = str(error).lower()
    return isinstance(error, MemoryError) or any(
        words in reason
        for words in ("can't allocate memory", "cannot allocate memory", "out of memory")
    )


def out_of_memory_error(model: str, error: BaseException) -> EngineError:
    """The refusal of a model for lack of memory; it may fit the next time."""
    reason = " ".join(str(error).split())[:200]
    return EngineError(
        f"the model {model!r} does not fit in memory ({reason}); use a smaller or quantized "
        "one, or give this machine's workers fewer models",
        kind="unavailable",
        retryable=True,
    )
