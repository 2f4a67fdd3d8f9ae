"""Loopline's build: its version and the commit that it was made from."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

RECORDED = "build.json"
"""File that `setup.py` writes into a wheel; a checkout asks git instead."""


@dataclass(frozen=True)
class Build:
    """A commit, and whether the working tree had changes."""

    commit: str
    modified: bool


@cache
def build() -> Build | None:
    """Commit of this code; None if neither git nor the wheel specifies one."""
    recorded = files("loopline").joinpath(RECORDED)
    if recorded.is_file():
        return Build(**json.loads(recorded.read_text()))
    return build_of_checkout(Path(__file__).resolve().parents[1])


def build_of_checkout(root: Path) -> Build | None:
    """Commit that git reports for a folder; None unless it is the top of a checkout."""
    if not (root / ".git").exists():
        return None
    try:
        commit = _git(root, "rev-parse", "--short=12", "HEAD")
        changes = _git(root, "status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.SubprocessError):
        return None
    return Build(commit=commit, modified=bool(changes))


def describe() -> str:
    """Return the build as one line, as `--version` prints it."""
    build_info = build()
    if build_info is None:
        return f"loopline {version('loopline')} (unknown build)"
    changed = ", modified" if build_info.modified else ""
    return f"loopline {version('loopline')} (commit {build_info.commit}{changed})"


def _git(root: Path, *words: str) -> str:
    command = ["git", "-C", str(root), *words]
    result = subprocess.run(command, check=True, capture_output=True, text=True, timeout=10)
    return result.stdout.strip()
