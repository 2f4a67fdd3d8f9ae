"""A deployment changes to another version and back while runs are in flight."""

from __future__ import annotations

from pathlib import Path

import pytest

from loopline.bench.errors import BenchError
from loopline.bench.proofs.upgrades import deployment, proof
from loopline.bench.proofs.upgrades.other_version import CHANGES, copy_of_this
from loopline.bench.proofs.upgrades.proof import UpgradesOptions, Way, upgrade_and_back

RUNS = 6


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("change", "way"), [("payload", "rolling"), ("prompt", "in place")])
async def test_runs_in_flight_finish_and_stay_readable_for_both_versions(
    change: str, way: Way, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # One worker of each kind: the new one is there before the old one leaves.
    monkeypatch.setattr(proof, "ROLLING_PAIRS", 1)
    # With fewer, all runs would end before a busy machine has checked them.
    monkeypatch.setattr(deployment, "LATENCY_SECONDS", 2.0)
    old = copy_of_this(tmp_path, "old")
    new = copy_of_this(tmp_path, "new", CHANGES[change])
    options = UpgradesOptions(runs=RUNS, forks=1)
    result = await upgrade_and_back(way, old, new, tmp_path / "deployment", options)
    assert (result.runs, result.bad, result.unreadable) == (2 * RUNS, [], [])
    assert result.in_flight > 0


@pytest.mark.parametrize("name", CHANGES)
def test_a_simulated_change_applies_to_the_code(name: str, tmp_path: Path) -> None:
    copy_of_this(tmp_path, name, CHANGES[name])
    assert (tmp_path / name / "loopline" / "build.json").exists()


def test_a_simulated_change_that_no_longer_applies_is_an_error(tmp_path: Path) -> None:
    version = copy_of_this(tmp_path, "step", CHANGES["step"])
    with pytest.raises(BenchError, match="fix this change"):
        CHANGES["step"](version.root / "loopline")
