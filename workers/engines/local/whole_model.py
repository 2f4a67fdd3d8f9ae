"""Whole models that a policy is answered with, in the place of an adapter: other weights of the
model that its pool was started with. A training of all weights comes to one.

What the pool has read of its own model stays in use: the tokenizer, the chat template, the shape of
the cache. So such a model must have the same tokenizer and the same configuration; its weights are
its own.
"""

from __future__ import annotations

from pathlib import Path

from loopline.workers.engines.local.model_files import unusable
from loopline.workers.engines.protocol import EngineError


def holds_whole_model(path: str) -> bool:
    """Whether the folder at `path` holds a model, and not an adapter in PEFT's format."""
    folder = Path(path).expanduser()
    return (folder / "config.json").is_file() and not (folder / "adapter_config.json").exists()


def require_same_tokenizer(path: str, base: Path, model: str) -> None:
    """Raises EngineError `bad_request` unless the model at `path` reads and writes the ids of the
    one in the folder `base`, which the user calls `model`."""
    own, others = ((each / "tokenizer.json") for each in (base, Path(path).expanduser()))
    try:
        same = own.read_bytes() == others.read_bytes()
    except OSError as error:
        raise unusable(path, f"tokenizer.json cannot be read: {error.strerror}") from error
    if not same:
        raise another(path, "tokenizer.json", model)


def another(path: str, file: str, model: str) -> EngineError:
    """The refusal of a model at `path` for what its `file` says."""
    return unusable(
        path,
        f"its {file} is another one than that of {model}: only what was trained from that model "
        "can take its place; serve this one as a pool of its own",
    )
