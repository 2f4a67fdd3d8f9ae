"""inspect's own reader, in its environment."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.clients.environments import environments

PROGRAM = Path(__file__).with_name("programs") / "read_inspect_log.py"


def read_by_inspect(path: Path) -> dict[str, Any]:
    """What inspect reads in a log. Skips the test where inspect is not installed."""
    environment = environments()["inspect"]
    if environment.missing:
        pytest.skip(environment.missing)
    done = subprocess.run(
        [environment.program, str(PROGRAM), str(path)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
