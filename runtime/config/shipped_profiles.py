"""The profiles that come with the program. Imports nothing: every `--help` names them."""

from __future__ import annotations

from pathlib import Path

PROFILE_DIR = Path(__file__).parents[1] / "profiles"


def profile_names() -> list[str]:
    return sorted(path.stem for path in PROFILE_DIR.glob("*.toml"))
