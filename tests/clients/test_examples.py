"""The examples that use OpenAI's clients, each in its client's environment."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.clients.environments import environments
from tests.runtime.gateway.scripted_gateway import ScriptedGateway

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize(
    ("name", "environment"),
    [("openai_client.py", "openai"), ("node_client.mjs", "npm-openai")],
)
def test_an_example_asks_a_model_and_a_team(
    gateway: ScriptedGateway, tmp_path: Path, name: str, environment: str
) -> None:
    client = environments()[environment]
    if client.missing:
        pytest.skip(client.missing)
    program = shutil.copy(EXAMPLES / name, tmp_path)
    if client.npm:
        (tmp_path / "node_modules").symlink_to(client.folder / "node_modules")
    done = subprocess.run(
        [client.program, program, "What is 12 * 7 + 5?"],
        env={**os.environ, "OPENAI_BASE_URL": gateway.url, "OPENAI_API_KEY": gateway.key},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "slm: " in done.stdout
    assert "team: 89\n" in done.stdout
    assert "tokens: " in done.stdout
