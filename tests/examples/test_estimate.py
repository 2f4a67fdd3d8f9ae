"""The environment of `examples/estimate.py`, used like one of another package: three agents, found
by the object's import path, played, trained into three adapters and reported."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from loopline.bench.proofs.grpo_faults.model import write_base
from loopline.testing import RedisProcess
from tests.bench.bench_process import errors_of, last_line
from tests.conftest import quick_settings
from tests.trainers.grpo.looped import Deployed, adapter, deployed, directory_of, same
from tests.trainers.grpo.test_command import command

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

ROOT = Path(__file__).parents[2]
GAME = "examples.estimate:ESTIMATE"
AGENTS = ("generator", "verifier", "refiner")
NUMBERS = tuple(f"{number}" for number in range(-90, 91, 9))
"""The model's most frequent answer by chance, so that rewards vary."""
MOST_LINES = 60


@pytest.fixture(scope="module")
def where(
    _shared_servers: dict[str, RedisProcess], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Deployed]:
    pytest.importorskip("peft", reason="needs make install")
    folder = tmp_path_factory.mktemp("estimate")
    bus = quick_settings(next(iter(_shared_servers.values())).url, lease_seconds=2.0)
    base = write_base(folder / "base", answers=NUMBERS)
    policies = {agent: f"pair/{agent}" for agent in AGENTS}
    with deployed(bus, base, folder / "workers", policies) as deployment:
        yield deployment


def environment_of(where: Deployed, folder: Path) -> dict[str, str]:
    """The folder in which a command finds the deployment."""
    return {
        **os.environ,
        "LOOPLINE_PROFILE": str(where.profile),
        "LOOPLINE_STATE": str(folder / "state"),
        # The model has a short context.
        "LOOPLINE_OPTIONS__PAIR__MAX_TOKENS": "8",
    }


def test_the_example_is_short() -> None:
    assert len((ROOT / "examples/estimate.py").read_text().splitlines()) <= MOST_LINES


def test_the_whole_team_and_each_agent_alone_play_the_environment(
    where: Deployed, tmp_path: Path
) -> None:
    arms = ("team", *(f"{agent}_alone" for agent in AGENTS))
    line = last_line(
        environment_of(where, tmp_path), "puzzles", "--game", GAME, "--samples", "4", "--arms",
        ",".join(arms), "--setting", "turns=2", "--output", str(tmp_path / "out"),
    )  # fmt: skip
    assert line["complete"]
    assert set(line["arms"]) == set(arms)
    for name, agents in zip(arms, (AGENTS, *((agent,) for agent in AGENTS)), strict=True):
        arm = line["arms"][name]
        assert arm["n"] == 4
        # Every agent has two turns, unless the first one solved it.
        assert len(agents) * 4 <= arm["usage"]["calls"] <= len(agents) * 8
        [version] = line["puzzles"]["versions"][name]
        assert all(f"{agent}: pair" in str(version["policies"]) for agent in agents)
    assert line["puzzles"]["baselines"].keys() == {"always 36"}
    page = (tmp_path / "out/report.html").read_text()
    assert all(name in page for name in arms)


def test_training_produces_and_reports_an_adapter_for_each_agent(
    where: Deployed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment_of(where, tmp_path).items():
        monkeypatch.setenv(name, value)
    code, out, err = command(
        "loop", tmp_path / "out", "--base", where.base, "--weights", "lora", "--rank", 2,
        "--policies", "per-role", "--game", GAME, "--max-tokens", 8, "--rounds", 2,
        "--puzzles", 6, "--batch", 6, "--learning-rate", 1e-2, "--truncated", "keep", "--json",
    )  # fmt: skip
    assert code == 0, err
    report = json.loads(out.splitlines()[-1])
    assert set(report["policies"]) == set(AGENTS)
    assert set(report["served"]) == {f"pair/{agent}" for agent in AGENTS}
    directory = directory_of(tmp_path / "out")
    for agent in AGENTS:
        assert not same(adapter(directory, 0, agent), adapter(directory, 2, agent))
        assert (tmp_path / "out/policies" / agent / "adapter_model.safetensors").is_file()
        assert agent in (tmp_path / "out/report.html").read_text()
    assert GAME in (tmp_path / "out/loop.json").read_text()


def test_an_address_without_an_environment_is_refused_before_anything_runs(
    where: Deployed, tmp_path: Path
) -> None:
    errors = errors_of(
        environment_of(where, tmp_path), "puzzles", "--game", "examples.estimate:PRODUCTS"
    )
    assert "is not an environment; examples.estimate has: ESTIMATE" in errors
