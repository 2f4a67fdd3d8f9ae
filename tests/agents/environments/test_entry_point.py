"""An environment of another package, found by its entry point and played by the `pair` workflow."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
MODULE = "tests.agents.environments.third_party"

PLAY = """
import asyncio, json
from loopline.agents.environments.registry import environments, find
from loopline.agents.errors import AgentError
from loopline.agents.workflow_runner import run_locally
from loopline.agents.records import Task
from loopline.agents.replay import replay
from loopline.agents.workflows import workflows
from tests.agents.test_pair import ManyHost, pair_run

def refused(instance, name="count_up"):
    try:
        find(name)
        workflows.get("pair").first(pair_run(Task(environment=name, instance=instance, prompt="?")))
    except AgentError as error:
        return f"{type(error).__name__}: {error}"

run = pair_run(Task(environment="count_up", instance={"goal": 3}, prompt="Count."), candidates=2)
hosts = {"tool_agent": ManyHost([["no", "1"], ["3", "5"]]),
         "plan_agent": ManyHost([["2", "1"], ["no", "4"]])}
ended = asyncio.run(run_locally(run, hosts))
print(json.dumps({
    "names": environments.names(),
    "outcome": ended.outcome,
    "selected": [step.selected for step in ended.steps],
    "seen": hosts["plan_agent"].prompts[1][-1].content,
    "replayed": asyncio.run(replay(ended)).divergences,
    "refused": [refused({"goal": "many"}), refused({}, "a_class"), refused({}, "misnamed"),
                refused({}, "sudoku"), refused({}, "count_upp")],
}))
"""


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return the output of a process that has the package installed, as pip would leave it."""
    site = tmp_path_factory.mktemp("site")
    info = site / "counting-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: counting\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[loopline.environments]\n"
        f"count_up = {MODULE}:game\n"
        f"a_class = {MODULE}:CountUp\n"
        f"misnamed = {MODULE}:game\n"
        f"sudoku = {MODULE}:game\n"
    )
    path = os.pathsep.join([str(site), str(ROOT)])
    ran = subprocess.run(
        [sys.executable, "-c", PLAY],
        env={**os.environ, "PYTHONPATH": path},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def test_another_package_s_environment_plays_and_replays_like_a_built_in_one(
    played: dict[str, Any],
) -> None:
    assert {"count_up", "plan_path", "sokoban", "sudoku"} <= set(played["names"])
    assert played["outcome"] == "solved"
    assert played["selected"] == [1, 0, 0, 1]
    assert played["seen"] == "Count up to 3. Said: ['1', '2', '3']"
    assert played["replayed"] == []


@pytest.mark.parametrize(
    ("which", "message"),
    [
        (0, "InvalidTask: no count_up instance: goal: Input should be a valid integer"),
        (1, "is not an environment: ModelMetaclass"),
        (2, "provides an environment called 'count_up'"),
        (3, "provides an environment called 'count_up'"),
        (4, "did you mean 'count_up'"),
    ],
)
def test_an_invalid_environment_or_instance_is_refused_by_name(
    played: dict[str, Any], which: int, message: str
) -> None:
    assert message in played["refused"][which]
