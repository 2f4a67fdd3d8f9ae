"""Nothing is lost and nothing doubled while workers and Redis are killed, in a smaller version
of `bench faults --runs 2000`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.faults.attacks import WEIGHTS
from bench.faults.checker import check
from bench.faults.command import Stage, figures
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
    print(json.dumps(figures(Stage("fast", found, violations))))
    assert [str(violation) for violation in violations] == []
    assert len(found.evidence.accepted) == 300
    # It was an attack, by all that can be done here.
    assert len(found.struck) >= len(WEIGHTS) // 2
    assert found.unable.keys() <= {"disk", "link"}


def test_an_attack_that_nobody_knows_is_refused_with_those_that_there_are() -> None:
    done = bench("faults", "--runs", "1", "--attacks", "kill,flood")
    assert done.returncode == 2
    assert "--attacks 'flood': there is kill, stop, redis, reset" in done.stderr
