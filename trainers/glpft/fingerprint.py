"""The hash of a model's weights, by which an adapter knows its base."""

from __future__ import annotations

import hashlib
from pathlib import Path


def weights_sha256(folder: Path) -> str:
    """SHA-256 over the names and contents of all safetensors files, sorted by name."""
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*.safetensors")):
        digest.update(f"{path.name}\n".encode())
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()
