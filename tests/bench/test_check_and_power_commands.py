"""`bench check` and `bench power` from the user's point of view: exit codes, messages."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.bench.command_line import bench


def write(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_check_gives_a_boolean_per_checker_and_line(tmp_path: Path) -> None:
    """Numbers and null are predictions too; blank lines are not lines."""
    path = write(
        tmp_path / "p.jsonl",
        json.dumps({"prediction": "\\boxed{70,000}", "gold": 70000}),
        "",
        json.dumps({"prediction": None, "gold": "18"}),
        json.dumps({"prediction": 18.0, "gold": 18, "extra": True}),
        json.dumps({"prediction": "#### 18", "gold": "9 * 2 = 18\n#### 18"}),
    )
    process = bench("check", str(path), "--json")
    assert process.returncode == 0, process.stderr
    rows = [json.loads(line) for line in process.stdout.splitlines()]
    names = ("numeric", "strict", "flexible", "math_verify", "delegate")
    assert [row["line"] for row in rows] == [1, 3, 4, 5]
    assert [[row[name] for name in names] for row in rows] == [
        [True, False, True, True, False],
        [False] * 5,
        [True, False, True, True, True],
        [True] * 5,
    ]


def test_check_without_json_prints_intervals_and_disagreements(tmp_path: Path) -> None:
    """The output for people."""
    path = write(tmp_path / "p.jsonl", json.dumps({"prediction": "70,000", "gold": "70000"}))
    process = bench("check", str(path))
    assert process.returncode == 0
    assert "math_verify" in process.stdout
    assert "The checkers disagree on 1 line:" in process.stdout


def test_check_reports_every_bad_line_and_scores_nothing(tmp_path: Path) -> None:
    """A score over part of a file would look like one over the whole."""
    path = write(
        tmp_path / "p.jsonl",
        json.dumps({"prediction": "18", "gold": "18"}),
        "{broken",
        "[1, 2]",
        json.dumps({"prediction": "18"}),
        json.dumps({"gold": "18"}),
        json.dumps({"prediction": "18", "gold": "???"}),
        json.dumps({"prediction": ["18"], "gold": "18"}),
        json.dumps({"prediction": "18", "gold": None}),
    )
    process = bench("check", str(path), "--json")
    assert process.returncode == 1
    assert process.stdout == ""
    for line in range(2, 9):
        assert f"{path}:{line}: " in process.stderr
    assert f"{path}:1:" not in process.stderr


def test_check_of_a_missing_file_is_a_usage_error(tmp_path: Path) -> None:
    """Exit code 2, like every wrong command line."""
    process = bench("check", str(tmp_path / "absent.jsonl"))
    assert process.returncode == 2
    assert "there is no such file" in process.stderr


def test_check_survives_bytes_that_are_not_utf8(tmp_path: Path) -> None:
    """The command reports them and does not guess an encoding."""
    path = tmp_path / "p.jsonl"
    path.write_bytes(b'{"prediction": "\xff", "gold": 1}\n')
    process = bench("check", str(path))
    assert process.returncode == 1
    assert f"{path}:1: not UTF-8" in process.stderr


def test_power_plans_a_comparison() -> None:
    """The number of questions; and what 500 would have shown about Delegate's +1.8 points."""
    process = bench("power", "--difference", "0.018", "--samples", "500", "--json")
    assert process.returncode == 0, process.stderr
    result = json.loads(process.stdout.splitlines()[-1])
    assert 2000 < result["samples_needed"] < 3500
    assert result["power"] < 0.3


@pytest.mark.parametrize(
    "arguments",
    [(), ("--difference", "0.5"), ("--samples", "0"), ("--samples", "9", "--target", "2")],
)
def test_power_refuses_impossible_options(arguments: tuple[str, ...]) -> None:
    """One message, exit code 2."""
    process = bench("power", *arguments)
    assert process.returncode == 2
    assert process.stderr.startswith("error: ")
