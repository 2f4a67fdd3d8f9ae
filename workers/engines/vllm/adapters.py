"""Weights to be loaded into servers: adapters, and whole models that replace the pool's own.

Servers know them as `name@version.fingerprint`: the name of the policy, its version, and the start
of the SHA-256 of its files. So no version is ever answered with the weights of another one,
regardless of the deployment or worker that loaded it, and a server that several workers share loads
it once. Prefixes that a server caches belong to this name.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from loopline.workers.engines.local.adapter_base import (
    base_of_adapter,
    holds_whole_model,
    model_configuration,
    other_model_error,
    require_base,
    require_same_tokenizer,
    weights_sha256,
)
from loopline.workers.engines.local.lora_config import read_lora_config
from loopline.workers.engines.local.model_files import (
    check_files,
    check_safetensors,
    local_folder,
    refuse_unreadable,
    unusable_error,
)

_FILES = ("adapter_config.json", "adapter_model.safetensors")
_MODEL_FILES = (".safetensors", ".json", ".txt", ".model", ".jinja")
"""Endings of the files of a whole model: weights, configuration, tokenizer, chat template."""


@dataclass(frozen=True)
class ServedAdapter:
    """Adapter as loaded into the servers."""

    name: str
    path: str
    """Folder on this machine, and at the same path for servers without `upload`."""
    files: tuple[str, ...] = _FILES
    """Names of the files that a server needs."""


@dataclass(frozen=True)
class ServedModel:
    """A whole model that replaces the pool's own in the servers."""

    name: str
    path: str
    files: tuple[str, ...] = ()


ServedWeights = ServedAdapter | ServedModel


def read_weights(
    policy: str,
    version: int,
    path: str,
    base_folder: Path,
    base_sha256: Callable[[], str | None],
    base: str,
) -> ServedWeights:
    """Check an adapter in PEFT's format, or a whole model, and name it. Blocks, for a whole model
    for the seconds that reading its files takes. `base_sha256` returns the hash of the base's
    weights, None if it is unknown. Raises EngineError `bad_request` for weights that no server can
    serve."""
    folder = local_folder(path, "adapter")
    if folder.is_dir() and holds_whole_model(str(folder)):
        return _read_whole_model(policy, version, path, folder, base_folder, base)
    with refuse_unreadable(str(folder), "adapter"):
        check_safetensors(folder, "adapter")
        # The servers ignore the fields that they do not know.
        config = read_lora_config(folder, path)
        if "target_modules" not in (config.model_extra or {}):
            raise unusable_error(path, f"{_FILES[0]} has no target_modules", "adapter")
        require_base(str(folder), base_of_adapter(str(folder)), base_sha256, base)
        digest = hashlib.sha256()
        for name in _FILES:
            digest.update((folder / name).read_bytes())
    return ServedAdapter(f"{policy}@{version}.{digest.hexdigest()[:8]}", str(folder.resolve()))


def _read_whole_model(
    policy: str, version: int, path: str, folder: Path, base_folder: Path, base: str
) -> ServedModel:
    check_files(folder)
    require_same_tokenizer(str(folder), base_folder, base)
    with refuse_unreadable(path):
        if model_configuration(folder) != model_configuration(base_folder):
            raise other_model_error(path, "config.json", base)
        fingerprint = weights_sha256(folder)[:8]
        files = sorted(file.name for file in folder.iterdir() if file.name.endswith(_MODEL_FILES))
    name = f"{policy}@{version}.{fingerprint}"
    return ServedModel(name, str(folder.resolve()), tuple(files))
