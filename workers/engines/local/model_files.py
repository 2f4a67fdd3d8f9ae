"""Finds the files of a model, and refuses what is unsafe or broken.

Weights are safetensors or GGUF; a checkpoint in pickle format is refused before anything is read.
What is missing or damaged is named.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, TypeVar

import httpx2
from huggingface_hub import snapshot_download
from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError
from safetensors import SafetensorError, safe_open

from loopline.workers.engines.local.gguf_header import DamagedHeader, check_header, read_header
from loopline.workers.engines.protocol import EngineError
from loopline.workers.engines.settings import ModelSettings

MIN_CONTEXT = 8
"""Tokens; the least that `max_context` may be set to as well."""
Weights = Literal["model", "adapter"]
T = TypeVar("T")
MICRO_MODELS = Path(__file__).parents[2] / "micro_models"
_MICRO = "micro:"
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.pkl", "*.ckpt")
_TEXT_FROM_HUB = ["*.json", "*.jinja", "merges.txt", "tokenizer.model"]
_WANTED_FROM_HUB = ["*.safetensors", *_TEXT_FROM_HUB]


def model_name(model: str) -> str:
    """The name for the records: a hub id or micro name as it is, of a path its last part."""
    path = Path(model).expanduser()
    return path.resolve().name if path.exists() else model


def find_folder(settings: ModelSettings) -> Path:
    """The folder with the model's config.json, fetched from the hub if need be. Raises
    EngineError."""
    return _find_folder(settings, _WANTED_FROM_HUB)


def find_text_folder(settings: ModelSettings) -> Path:
    """Find the folder as `find_folder` does, but don't fetch the weights, which somebody else
    reads."""
    return _find_folder(settings, _TEXT_FROM_HUB)


def _find_folder(settings: ModelSettings, wanted: list[str]) -> Path:
    model = settings.model
    path = local_folder(model)
    if path.is_dir():
        return path
    if path.exists():
        raise unusable_error(model, "it is a file; name the folder that holds config.json")
    if not _HUB_ID.fullmatch(model):
        raise unusable_error(model, "there is no such folder")
    return _download(model, settings.revision, wanted)


def is_on_hub(settings: ModelSettings) -> bool:
    """Whether the model is a name on the hub, and no path or micro model of this machine."""
    if settings.engine not in ("torch", "llama_cpp") or settings.model.startswith(_MICRO):
        return False
    return not Path(settings.model).expanduser().exists()


def fetch(settings: ModelSettings) -> Path:
    """Return the path of a model's files, fetched from the hub if need be. Raises EngineError."""
    return (find_gguf if settings.engine == "llama_cpp" else find_folder)(settings)


def local_folder(model: str, what: Weights = "model") -> Path:
    """Return the folder that a path, or the name of a micro model, points to. Raises EngineError
    for a micro model that is not shipped, or the home of a user that does not exist."""
    if not model.startswith(_MICRO):
        try:
            return Path(model).expanduser()
        except RuntimeError as error:
            raise unusable_error(
                model, "this machine has no such user: name the folder", what
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
    """The GGUF file that the settings name. Raises EngineError."""
    model = settings.model
    path = Path(model).expanduser()
    if path.is_dir():
        files = sorted(path.glob("*.gguf"))
        if len(files) != 1:
            raise unusable_error(
                model,
                f"the folder has {len(files)} *.gguf files; name the file. A model of ours becomes "
                "one by: train export --gguf",
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
    """Tokens that a prompt and its answer may have: the model's own bound, or less where the
    settings say so. Raises EngineError for a model whose bound leaves no room for both."""
    if bound < MIN_CONTEXT:
        raise unusable_error(
            settings.model,
            f"its files say that its context holds {bound} tokens (max_position_embeddings in "
            f"config.json, context_length in a GGUF header), and {MIN_CONTEXT} is the least",
        )
    return min(bound, settings.max_context or bound)


def check_gguf(path: Path, name: str, what: Weights = "model") -> None:
    """Raises EngineError if there is no such file, or llama.cpp would not survive it."""
    _read_gguf(check_header, path, name, what)


def gguf_text(path: Path, key: str, name: str, what: Weights = "model") -> str | None:
    """A text in the header of a file; None if it has none of that key. Raises EngineError if there
    is no such file, or its header is damaged."""
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
    """Fetch (or find in the hub's cache) the files of these names: nothing else, so that a pickle
    is not even downloaded."""
    try:
        return Path(snapshot_download(model, revision=revision, allow_patterns=patterns))
    except GatedRepoError as error:
        raise unusable_error(
            model, "its authors ask for consent: accept the terms on the hub and set HF_TOKEN"
        ) from error
    except RepositoryNotFoundError as error:
        raise unusable_error(
            model, "there is neither such a folder nor such a model on the hub"
        ) from error
    except RevisionNotFoundError as error:
        raise unusable_error(
            model, f"on the hub it has no revision {revision!r}: name a branch, tag or commit of it"
        ) from error
    except (httpx2.HTTPError, OSError) as error:
        raise EngineError(
            f"the model {model!r} is neither a folder nor in the hub's cache, and the hub cannot "
            f"be reached ({type(error).__name__}); connect, or name a local folder",
            kind="unavailable",
            retryable=True,
        ) from error


def check_files(folder: Path) -> None:
    """Raises EngineError unless the folder holds a whole model in a safe format."""
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
    """Whatever a library stumbles over in files from outside is a refusal of the model: a
    division by a size of zero, a template that is none, a number that is a word, a folder that
    may not be entered."""
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
    """Whether memory ran out; where libraries raise a plain RuntimeError or OSError for it, its
    words decide."""
    reason = str(error).lower()
    return isinstance(error, MemoryError) or any(
        words in reason
        for words in ("can't allocate memory", "cannot allocate memory", "out of memory")
    )


def out_of_memory_error(model: str, error: BaseException) -> EngineError:
    """The refusal of a model for want of memory: it may be there the next time."""
    reason = " ".join(str(error).split())[:200]
    return EngineError(
        f"the model {model!r} does not fit into the memory ({reason}); take a smaller or quantized "
        "one, or give this machine's workers fewer models",
        kind="unavailable",
        retryable=True,
    )
