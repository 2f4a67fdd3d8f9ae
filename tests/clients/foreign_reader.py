"""Programs that read our files with another project's own reader, in that project's environment."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.clients.environments import environments

PROGRAMS = Path(__file__).with_name("programs")


def read_by_inspect(path: Path) -> dict[str, Any]:
    """A log as inspect reads it. Skips the test if inspect is not installed."""
    return _read("inspect", "read_inspect_log.py", path)


def read_by_verifiers(folder: Path) -> list[dict[str, Any]]:
    """The episodes of a folder. Skips the test if verifiers is not installed."""
    return _read("verifiers", "read_traces.py", folder)


def _read(project: str, program: str, path: Path) -> Any:
    environment = environments()[project]
    if environment.missing:
        pytest.skip(environment.missing)
    done = subprocess.run(
        [environment.program, "-P", str(PROGRAMS / program), str(path)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
