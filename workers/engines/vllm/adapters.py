"""Adapters on their way into vLLM servers.

A server knows an adapter as `name@version.fingerprint`: the name of the policy, its version, and
the start of the SHA-256 of its files. So a version is never answered with the weights of another
one, whichever deployment or worker has loaded it, and a server that several workers share loads it
once. Prefixes that a server keeps belong to this name.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass

from loopline.workers.engines.local.adapter_base import (
    NO_WHOLE_MODEL,
    base_of_adapter,
    holds_whole_model,
    require_base,
)
from loopline.workers.engines.local.model_files import (
    check_safetensors,
    local_folder,
    refuse_unreadable,
    unusable_error,
)

_FILES = ("adapter_config.json", "adapter_model.safetensors")


@dataclass(frozen=True)
class ServedAdapter:
    """As the servers have it."""

    name: str
    path: str
    """The folder, as the servers see it, too."""


def read_adapter(
    policy: str, version: int, path: str, weights: Callable[[], str | None], base: str
) -> ServedAdapter:
    """Look at an adapter in PEFT's format; blocks. `weights` gives the hash of the base's weights,
    None if nobody knows it. Raises EngineError `bad_request` for what no server can serve."""
    folder = local_folder(path, "adapter")
    if folder.is_dir() and holds_whole_model(str(folder)):
        raise unusable_error(path, NO_WHOLE_MODEL)
    with refuse_unreadable(str(folder), "adapter"):
        check_safetensors(folder, "adapter")
        config: object = json.loads((folder / _FILES[0]).read_text())
        if not isinstance(config, dict) or "target_modules" not in config:
            raise unusable_error(path, f"{_FILES[0]} names no target_modules", "adapter")
        require_base(str(folder), base_of_adapter(str(folder)), weights, base)
        digest = hashlib.sha256()
        for name in _FILES:
            digest.update((folder / name).read_bytes())
    return ServedAdapter(f"{policy}@{version}.{digest.hexdigest()[:8]}", str(folder.resolve()))
