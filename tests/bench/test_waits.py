"""`bench waits`: real processes, a real Redis, and seven days of its clock."""

from __future__ import annotations

import json

import pytest

from loopline.testing.shifted_clock import can_shift_clocks
from tests.bench.command_line import bench

pytestmark = pytest.mark.slow


@pytest.mark.skipif(not can_shift_clocks(), reason="no C compiler on this machine, or no Linux")
def test_waiting_runs_survive_seven_days_and_the_death_of_all_and_resume_once() -> None:
    process = bench("waits", "--runs", "80", "--kills", "2", "--seed", "3", "--json")
    assert process.returncode == 0, process.stdout + process.stderr
    line = json.loads(process.stdout.splitlines()[-1])
    figures = {name: entry["value"] for name, entry in line["measurements"].items()}
    assert (figures["lost"], figures["repeated"]) == (0, 0)
    assert 0 < figures["bytes_per_wait"] < 4_000
    assert sum(line["facts"]["runs"].values()) == 80
