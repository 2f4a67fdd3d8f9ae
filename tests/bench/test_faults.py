"""Nothing is lost or doubled while workers, Redis, connections and clocks are attacked, in a
smaller version of `bench faults --runs 2000`."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from loopline.bench.proofs.faults import supervised
from loopline.bench.proofs.faults.checker import check
from loopline.bench.proofs.faults.collection import find_keys_without_ttl
from loopline.bench.proofs.faults.proof import counts_of
from loopline.bus import Bus
from tests.bench.attacks import attack
from tests.bench.command_line import bench

pytestmark = pytest.mark.slow

SEED = 20_260_816
"""Its first eight attacks are of seven kinds."""


def test_a_folder_with_an_earlier_attack_is_refused(
    tmp_path: Path,
) -> None:
    (tmp_path / "evidence.json").write_text("{}")
    process = bench("faults", "--runs", "1", "--evidence", str(tmp_path))
    assert process.returncode == 2
    assert f"{tmp_path} is not an empty folder; choose another one" in process.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["evidence.json"]


@pytest.mark.timeout(900)
def test_a_hundred_and_fifty_runs_survive_an_attack_of_many_kinds() -> None:
    report = attack(runs=150, seed=SEED, rate=15)
    violations = check(report.evidence)
    print(json.dumps(counts_of(report)))
    assert [str(violation) for violation in violations] == []
    assert len(report.evidence.accepted) == 150
    assert len(report.injected) >= 5
    assert report.unable.keys() <= {"disk", "link"}


@pytest.mark.timeout(900)
def test_twenty_runs_survive_the_death_of_their_supervisor(tmp_path: Path) -> None:
    report = asyncio.run(supervised.attack(tmp_path, 20, SEED, print))
    assert [str(violation) for violation in check(report.evidence)] == []
    assert len(report.evidence.accepted) == 20
    assert report.injected[supervised.NAME] >= 1


async def test_only_what_a_person_removes_may_lack_an_expiry(bus: Bus) -> None:
    keys = (*bus.keys.permanent, bus.keys.policies)
    for key in keys:
        await bus.redis.hset(key, "name", "value")  # pyright: ignore[reportGeneralTypeIssues]
    lasting = await find_keys_without_ttl(bus)
    await bus.redis.delete(*keys)  # later tests share the server and require that all keys expire
    assert lasting == [bus.keys.policies]


def test_an_unknown_attack_is_refused_with_the_known_ones() -> None:
    process = bench("faults", "--runs", "1", "--attacks", "kill,flood")
    assert process.returncode == 2
    assert "--attacks 'flood': choose from kill, stop, redis, reset" in process.stderr
