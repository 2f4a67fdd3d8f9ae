"""`bench puzzles` plays an OpenEnv server: workers and judge query it."""

from __future__ import annotations

from pathlib import Path

import pytest

from loopline.workers.engines.settings import ModelSettings
from loopline.workers.openenv.environment import PLAYER, URL_VARIABLE
from loopline.workers.settings import GpuWorkerSettings, RoleWorkerSettings, WorkerBase
from tests.bench.bench_process import deployable, last_line
from tests.workers.openenv.number_server import number_server
from tests.workers.processes import workers_running

GAME = "loopline.workers.openenv:SERVER"
HALVES = {5: (3, 7), 3: (2, 4), 7: (6, 8), 2: (1, None), 8: (None, 9)}
"""Guess → the next guess if the number is lower, or higher."""


def script() -> list[dict[str, list[str]]]:
    """Halves the remaining numbers, starting with the longer path."""
    answers: list[dict[str, list[str]]] = []

    def add(history: list[str], guess: int) -> None:
        for word, following in zip(("lower", "higher"), HALVES.get(guess, ()), strict=False):
            if following is not None:
                add([*history, f'{{"guess": {guess}}}\nReward 0.\nIt is {word}.'], following)
        answers.append({"where": [*history, "Guess a number"], "says": [f'{{"guess": {guess}}}']})

    add([], 5)
    return answers


async def test_a_model_that_halves_the_numbers_guesses_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with number_server() as server:
        monkeypatch.setenv(URL_VARIABLE, server.url)
        more = {URL_VARIABLE: server.url, "LOOPLINE_POLICIES__PLAYER": "pair"}
        with deployable(tmp_path, "petting", **more) as (bus, environment):
            model = ModelSettings.model_validate(
                {"engine": "scripted", "model": "m", "scripted": {"answers": script()}}
            )
            workers: list[WorkerBase] = [
                RoleWorkerSettings(bus=bus, name="roles", roles=("player",)),
                GpuWorkerSettings(bus=bus, name="gpu", models={"pair": model}),
            ]
            arguments = ("puzzles", "--game", GAME, "--setting", "turns=4", "--samples", "8")
            async with workers_running(workers, tmp_path / "workers"):
                line = last_line(
                    environment, *arguments, "--arms", "team", "--output", str(tmp_path / "out")
                )
        assert line["complete"]
        arm = line["arms"]["team"]
        assert (arm["n"], arm["right"]) == (8, 8)
        [version] = line["puzzles"]["versions"]["team"]
        assert f"{PLAYER}: pair v0" in version["policies"]
        assert server.steps > 0
