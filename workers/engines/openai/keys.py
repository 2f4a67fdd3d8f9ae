"""An endpoint's API key, as the engine and `runtime doctor` read it from the environment."""

from __future__ import annotations

import os


def key_in(variable: str) -> str:
    """Without the blanks and the end of a line that were copied along with it; empty where there is
    none."""
    return os.environ.get(variable, "").strip()


def what_is_wrong(key: str) -> str | None:
    """Why no header can hold it; None if one can."""
    if key.isascii() and key.isprintable():
        return None
    return "holds a character that no key has"
