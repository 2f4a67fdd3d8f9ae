"""A taskset of verifiers as an environment, played with verifiers' own package."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.clients.environments import environments

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).with_name("programs") / "play_taskset.py"


@pytest.fixture(scope="module")
def outcome() -> dict[str, Any]:
    environment = environments()["verifiers"]
    if environment.missing:
        pytest.skip(environment.missing)
    done = subprocess.run(
        [environment.program, "-P", str(PROGRAM)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_agent_sees_the_prompts_but_not_the_answer(outcome: dict[str, Any]) -> None:
    assert outcome["seen"].startswith("Be brief.\n\nWhat is ")
    assert outcome["answer"] not in outcome["seen"].split()


def test_the_weighted_rewards_of_the_task_score_an_answer(
    outcome: dict[str, Any],
) -> None:
    assert outcome["right"] == [1.0, ""]
    assert outcome["wrong"] == [0.25, "the reward is 0.25"]
    assert outcome["long"] == [0.0, "the reward is 0"]
    assert outcome["lenient"] == [0.25, ""]


def test_tasks_are_drawn_by_seed_and_split(outcome: dict[str, Any]) -> None:
    assert outcome["same"]
    assert outcome["apart"]


def test_a_task_without_a_prompt_or_with_a_runtime_reward_is_refused(
    outcome: dict[str, Any],
) -> None:
    assert "the reward files of InARuntime looks into a runtime" in outcome["in_a_runtime"]
    assert "WithoutPrompt has no prompt" in outcome["without_prompt"]
