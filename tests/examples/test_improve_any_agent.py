"""`examples/improve_any_agent` in pydantic-ai's own environment: a deployment that one of its
agents knows nothing about judges and trains that agent."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.clients.environments import environments

FOLDER = Path(__file__).parents[2] / "examples" / "improve_any_agent"
PROGRAMS = sorted(FOLDER.glob("*.py"))
MAX_LINES = 60


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.name)
def test_its_programs_are_short_and_do_not_import_the_runtime(path: Path) -> None:
    text = path.read_text()
    imported: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            imported |= {name.name.partition(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add((node.module or "").partition(".")[0])
    assert imported
    assert "loopline" not in imported
    assert len(text.splitlines()) < MAX_LINES


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_agent_is_evaluated_trained_on_its_rewards_and_evaluated_again(tmp_path: Path) -> None:
    client = environments()["pydantic-ai"]
    if client.missing:
        pytest.skip(client.missing)
    pytest.importorskip("peft", reason="needs make install")
    # With fewer tasks or samples, a model that is rarely in doubt may get equal rewards in each
    # group, and there is nothing to train on.
    sizes = ("--seeds", "1", "--rounds", "1", "--tasks", "24", "--held-out", "24")
    command = [client.program, str(FOLDER / "run.py"), str(tmp_path / "out"), *sizes]
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("LOOPLINE_")},
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONDONTWRITEBYTECODE": "1",
    }

    def run() -> str:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=240, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    output = run()
    assert re.search(r"^   1 +\d+\.\d% +\d+\.\d% +[+-]\d", output, re.MULTILINE)
    folder = tmp_path / "out/seed-1"
    samples = (folder / "round-0.jsonl").read_text().splitlines()
    assert len(samples) == 24 * 8
    report = json.loads((folder / "version-1/report.json").read_text())
    assert report["runs"] > len(samples)  # the calculator's results were answered
    assert report["groups"] == 24
    assert "llm/shop: version 1" in (folder / "training.log").read_text()
    # A finished seed is only displayed again.
    assert run().splitlines()[-20:] == output.splitlines()[-20:]


def test_a_deployment_without_a_gateway_is_reported_at_once() -> None:
    spec = importlib.util.spec_from_file_location("agent_deployment", FOLDER / "deployment.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    url = "http://127.0.0.1:1/v1"
    assert module.gateway({}) is None
    assert module.gateway({"phase": "starting", "gateway": None}) is None
    assert module.gateway({"phase": "ready", "gateway": {"url": url}}) == url
    with pytest.raises(SystemExit, match="the deployment has no gateway"):
        module.gateway({"phase": "ready", "gateway": None})
