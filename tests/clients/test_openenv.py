"""A server of OpenEnv's own package, played as an environment."""

from __future__ import annotations

import json
import random
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from loopline.agents.environments.environment import Environment
from loopline.agents.environments.puzzle_splits import Split
from loopline.workers.openenv import openenv_environment
from loopline.workers.openenv.environment import PLAYER
from tests.clients.environments import environments

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).with_name("programs") / "openenv_server.py"


@pytest.fixture(scope="module")
def numbers() -> Iterator[Environment[Any, Any, Any]]:
    environment = environments()["openenv"]
    if environment.missing:
        pytest.skip(environment.missing)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with subprocess.Popen([environment.program, "-P", str(PROGRAM), str(port)]) as server:
        try:
            yield openenv_environment("numbers", "Numbers", f"http://127.0.0.1:{port}")
        finally:
            server.terminate()


def test_an_episode_on_an_openenv_server_refuses_a_wrong_action_and_can_be_solved(
    numbers: Environment[Any, Any, Any],
) -> None:
    puzzle = next(numbers.stream(Split.TRAIN, 1, numbers.difficulty()))
    secret = random.Random(puzzle.seed).randint(1, 9)
    episode = numbers.reset(json.loads(puzzle.task.model_dump_json())["instance"])
    assert episode.observe(PLAYER).startswith("Guess a number from 1 to 9.")
    assert '"guess"' in episode.observe(PLAYER)
    refused = episode.apply(PLAYER, '{"guess": "seven"}')
    assert [refusal.reason for refusal in refused.observation.refusals] == ["refused_action"]
    scores = [
        episode.copy().apply(PLAYER, json.dumps({"guess": guess})).rewards.sums()["local"]
        for guess in range(1, 10)
    ]
    assert scores == [float(guess == secret) for guess in range(1, 10)]
    episode.apply(PLAYER, json.dumps({"guess": secret}))
    assert episode.done
    assert episode.verify().solved
