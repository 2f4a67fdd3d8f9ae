"""`bench history` compares lines of the same machine and options, and reports regressions beyond
the interval."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from loopline.bench.proofs import baselines
from loopline.bench.proofs.baselines import Baseline, RecordedValue
from loopline.bench.proofs.history import change_of, series_of
from tests.bench.command_line import bench


def value(
    middle: float | None,
    low: float | None = None,
    high: float | None = None,
    *,
    better: str | None = "higher",
    bar: float | None = None,
) -> RecordedValue:
    return RecordedValue(value=middle, low=low, high=high, better=better, bar=bar)


@pytest.mark.parametrize(
    ("values", "change"),
    [
        ([value(10, 9, 11), value(8, 7, 8.9)], "worse"),
        ([value(10, 9, 11), value(9, 8, 10)], ""),
        ([value(10, 9, 11), value(13, 12, 14)], "better"),
        ([value(10, 9, 11, better="lower"), value(13, 12, 14, better="lower")], "worse"),
        ([value(10, 9, 11, better=None), value(1, 1, 2, better=None)], ""),
        ([value(10, 9, 11, bar=9.5), value(9.4, 9, 10, bar=9.5)], "worse"),
        ([value(9.4, 9, 10, bar=9.5), value(9.4, 9, 10, bar=9.5)], ""),
        ([value(10)], ""),
        ([value(10), value(1)], ""),
        ([value(10), value(8), value(7)], "worse"),
        ([value(10), value(8), value(9)], ""),
        ([value(10, 9, 11), None, value(8, 7, 8.9)], "worse"),
        ([value(10, 9, 11), value(None)], ""),
        ([value(10, 9, 11), None], ""),
    ],
)
def test_a_measurement_is_worse_if_its_interval_lies_beyond_the_previous_one(
    values: Sequence[RecordedValue | None], change: str
) -> None:
    assert change_of(values) == change


def line(speed: float, **changed: Any) -> Baseline:
    return Baseline.model_validate(
        {
            "proof": "bus", "date": "2026-11-26T04:00:00Z", "commit": "0123456789ab",
            "modified": False, "machine": {"cpu": "a", "cores": 2, "memory_gb": 8}, "load": 0.5,
            "versions": {}, "passed": True, "complete": True, "seconds": 1.0,
            "options": {"repeats": 3, "seed": 1}, "violations": {}, "facts": {},
            "measurements": {
                "speed": {
                    "value": speed, "low": speed - 1, "high": speed + 1, "better": "higher",
                    "unit": "/s",
                },
                "a group / ours / delay": {"value": 5.0, "better": "lower"},
            },
        } | changed
    )  # fmt: skip


def test_lines_are_separated_by_machine_and_options_but_not_by_seed() -> None:
    other = {"cpu": "b", "cores": 2, "memory_gb": 8}
    all_series = series_of(
        [
            line(10),
            line(10, machine=other),
            line(10, options={"repeats": 5, "seed": 1}),
            line(10, options={"repeats": 3, "seed": 2}),
        ]
    )
    assert [len(series.lines) for series in all_series] == [2, 1, 1]


def test_a_violation_in_the_last_line_counts_as_worse() -> None:
    (series,) = series_of([line(10), line(10, violations={"ended once": 2})])
    assert series.worse == ["ended once: 2 violations"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(baselines, "folder", lambda: tmp_path)
    return tmp_path


def recorded(folder: Path, *lines: Baseline) -> None:
    text = "".join(f"{line.model_dump_json()}\n" for line in lines)
    (folder / "bus.jsonl").write_text(text)


def test_the_history_shows_date_commit_and_regressions(folder: Path) -> None:
    recorded(folder, line(10), line(5))
    done = bench("history")
    assert done.returncode == 0
    for text in ("bus: 2 lines, a, 2 cores, 8 GB", "2026-11-26", "01234567", "load 0.5",
                 "10 /s", "(4–6)", "worse speed"):  # fmt: skip
        assert text in done.stdout
    assert "delay" not in done.stdout
    assert "a group / ours / delay" in bench("history", "bus", "--all").stdout
    assert bench("history", "--check").returncode == 1


def test_a_history_without_regressions_passes_the_check(folder: Path) -> None:
    recorded(folder, line(10), line(10.5))
    assert bench("history", "bus", "--check").returncode == 0


def test_a_proof_without_lines_is_refused_with_the_proofs_that_have_some(folder: Path) -> None:
    recorded(folder, line(10))
    done = bench("history", "soak")
    assert done.returncode == 2
    assert "`bench soak --record` adds one. It has lines of: bus" in done.stderr


def test_a_damaged_line_is_reported(folder: Path) -> None:
    recorded(folder, line(10))
    with (folder / "bus.jsonl").open("a") as file:
        file.write(json.dumps({"proof": "bus"}) + "\n")
    done = bench("history", "bus")
    assert done.returncode == 1
    assert "bus.jsonl:2: the line is damaged" in done.stderr


def test_the_lines_of_this_repository_can_be_read() -> None:
    for proof in baselines.recorded_proofs():
        lines = baselines.read(proof)
        assert lines
        assert all(line.proof == proof and line.complete for line in lines)
