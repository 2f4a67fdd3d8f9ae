"""`bench effects`: real workers die at the lines of a call, and the effects in the world are
counted."""

from __future__ import annotations

import json

import pytest

from tests.bench.command_line import bench

pytestmark = pytest.mark.slow


def test_no_effect_is_repeated_if_workers_die_at_any_line() -> None:
    process = bench("effects", "--calls", "300", "--peer-calls", "0", "--seed", "3", "--json")
    assert process.returncode == 0, process.stderr
    line = json.loads(process.stdout.splitlines()[-1])
    figures = {name: entry["value"] for name, entry in line["measurements"].items()}
    bars = ("keyed_duplicates", "once_duplicates", "unlisted_unknowns")
    assert [figures[name] for name in bars] == [0, 0, 0]
    assert figures["calls and effects / effect once / kills"] > 0
