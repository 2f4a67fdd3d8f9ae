"""Nothing is lost and nothing doubled while workers and Redis are killed, in a smaller version
of `bench faults --runs 2000`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.faults.checker import check
from bench.faults.command import Plan, figures
from tests.bench.attacks import attack
from tests.bench.command_line import bench

SEED = 20_260_801


def test_a_folder_that_holds_an_earlier_attack_is_refused_before_another_one(
    tmp_path: Path,
) -> None:
    (tmp_path / "evidence.json").write_text("{}")
    done = bench("faults", "--runs", "1", "--output", str(tmp_path))
    assert done.returncode == 2
    assert f"{tmp_path} holds something else; name another folder" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["evidence.json"]


@pytest.mark.timeout(900)
def test_three_hundred_runs_survive_an_attack() -> None:
    found = attack(runs=300, seed=SEED, rate=15)
    violations = check(found.evidence)
    plan = Plan(runs=300, seed=SEED, workers=6, rate=15, appendfsync="always", output=None)
    print(json.dumps(figures(plan, found, violations)))
    assert [str(violation) for violation in violations] == []
    assert len(found.evidence.accepted) == 300
    # It was an attack: each kind of blow fell.
    assert all(found.struck[blow] for blow in ("kill", "stop", "redis"))
    # Nobody died by himself, not even who started while Redis was away.
    assert found.died == []
