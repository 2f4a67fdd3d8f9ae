"""verifiers' own reader of episodes, in its environment."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.clients.environments import environments

PROGRAM = Path(__file__).with_name("programs") / "read_traces.py"


def read_by_verifiers(folder: Path) -> list[dict[str, Any]]:
    """The episodes of a folder. Skips the test where verifiers is not installed."""
    environment = environments()["verifiers"]
    if environment.missing:
        pytest.skip(environment.missing)
    done = subprocess.run(
        [environment.program, "-P", str(PROGRAM), str(folder)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
