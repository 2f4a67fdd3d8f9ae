"""The programs of `examples/`. The pages that show them run most of them (`tests/docs`)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.docs.fences import ROOT, blocks, documents

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
MAX_LINES = 60


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_is_short_and_a_page_shows_it(path: Path) -> None:
    lines = path.read_text().splitlines()
    assert len(lines) < MAX_LINES
    code_blocks = [
        block for page in documents() for block in blocks(page) if path.name in block.text
    ]
    assert any(f'--8<-- "examples/{path.name}"' in block.text for block in code_blocks)


def test_every_entry_point_of_the_examples_names_an_existing_object(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    project = tomllib.loads((ROOT / "examples" / "pyproject.toml").read_text())["project"]
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    for group in project["entry-points"].values():
        for name, target in group.items():
            module, _, member = target.partition(":")
            item = getattr(__import__(module), member)
            assert item.name == name


@pytest.mark.slow
def test_recorded_runs_train_an_adapter_that_the_running_deployment_serves(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "LOOPLINE_STATE": str(tmp_path / "state"),
    }

    def run(*command: str) -> str:
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run("runtime", "up", "--profile", "umi_micro", "--detach")
    try:
        output = run(sys.executable, "examples/train_and_swap.py", "12", "20000")
        listed = output.partition("$ runtime policies ls")[2].partition("$ bench")[0]
        for role in ("planner", "caller", "summarizer"):
            assert f"umi/{role}" in listed
    finally:
        run("runtime", "down")
