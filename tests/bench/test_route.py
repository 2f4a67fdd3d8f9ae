"""`bench route`: the worth of a router, and when the command reports that it has none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.bench.command_line import bench
from tests.trainers.labelled_answers import labelled_rows, write_rows


def route(path: Path, *options: str) -> dict[str, Any]:
    process = bench("route", "--labelled", str(path), "--splits", "30", "--json", *options)
    assert process.returncode == 0, process.stderr
    (line,) = process.stdout.splitlines()
    return json.loads(line)


@pytest.fixture(scope="module")
def with_signal(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    folder = tmp_path_factory.mktemp("route")
    path = write_rows(folder / "labelled.jsonl", labelled_rows(400, signal=True, logprobs=True))
    return route(path, "--output", str(folder / "report")), folder / "report"


def test_a_router_keeps_its_bound_and_pays_if_the_text_reveals_wrong_answers(
    with_signal: tuple[dict[str, Any], Path],
) -> None:
    line, _ = with_signal
    assert line["risk_held_share"] >= 0.95
    assert line["cost_vs_best_baseline_high"] < 1
    assert line["pays"]
    assert line["verdict"].startswith("A router pays off")
    assert line["signal"]["auc"] > 0.9


def test_every_baseline_is_compared_with_the_router_at_equal_accuracy(
    with_signal: tuple[dict[str, Any], Path],
) -> None:
    comparison = with_signal[0]["comparison"]
    baselines = {entry["name"]: entry for entry in comparison["baselines"]}
    assert {"big", "mixing", "ladder", "logprob"} <= baselines.keys()
    cheapest = min(entry["cost_at_equal_accuracy"] for entry in baselines.values())
    rules = {rule["name"]: rule for rule in comparison["rules"]}
    ratio = comparison["cost_vs_best_baseline"]["estimate"]
    assert ratio == pytest.approx(rules["router"]["cost"]["estimate"] / cheapest)
    assert rules["oracle"]["accuracy"]["estimate"] >= rules["router"]["accuracy"]["estimate"]


def test_the_report_shows_the_plot_and_the_verdict(
    with_signal: tuple[dict[str, Any], Path],
) -> None:
    line, folder = with_signal
    page = (folder / "report.html").read_text()
    assert "Accuracy against dollars" in page
    assert line["verdict"] in (folder / "report.md").read_text()
    assert json.loads((folder / "report.json").read_text())["questions"] == 400


def test_the_command_promises_nothing_if_the_text_reveals_nothing(tmp_path: Path) -> None:
    line = route(write_rows(tmp_path / "null.jsonl", labelled_rows(400, signal=False)))
    assert not line["pays"]
    assert not line["signal"]["significant"]
    assert "nothing is guaranteed" in line["verdict"]
    assert line["risk_held_share"] >= 0.95


def test_costs_in_the_file_take_precedence_over_prices(tmp_path: Path) -> None:
    rows = labelled_rows(100, signal=True)
    for row in rows:
        row["small"]["cost"], row["big"]["cost"] = 0.5, 2.0
    line = route(write_rows(tmp_path / "costs.jsonl", rows))
    rules = {rule["name"]: rule["cost"]["estimate"] for rule in line["comparison"]["rules"]}
    assert rules["small"] == pytest.approx(0.5)
    assert rules["big"] == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("change", "trouble"),
    [
        ({"small": {"text": "4"}}, "small.right: Field required"),
        ({"small": {"text": "4", "right": "yes"}}, "small.right: Input should be a valid boolean"),
        ({"small": {"text": 4, "right": True}}, "small.text: Input should be a valid string"),
        ({"big": None}, "big: Input should be a valid dictionary"),
        ({"question": ""}, "question: String should have at least 1 character"),
        ({"id": "q1"}, "line 2 has the same id 'q1'"),
        ({"id": None}, "id."),
        ({"small": {"text": "4", "right": True, "logprobs": [0.5]}}, "at most 0"),
        ({"small": {"text": "4", "right": True, "cost": -1}}, "small.cost"),
        ({"small": {"text": "4", "right": True, "samples": ["5"] * 100}}, "small.samples"),
    ],
)  # fmt: skip
def test_a_bad_line_is_refused_with_its_file_and_line(
    tmp_path: Path, change: dict[str, Any], trouble: str
) -> None:
    rows = labelled_rows(70, signal=True)
    rows[4] |= change
    path = write_rows(tmp_path / "bad.jsonl", rows)
    process = bench("route", "--labelled", str(path))
    assert process.returncode != 0
    assert f"{path}:5: " in process.stderr
    assert trouble in process.stderr


@pytest.mark.parametrize(
    "content",
    [b"", b"\xff\xfe", b"[1]\n", b"{" * 100_000, b'{"id": NaN}\n', b'{"id": 1}' * 2],
)
def test_an_invalid_file_is_refused_without_a_traceback(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "hostile.jsonl"
    path.write_bytes(content)
    process = bench("route", "--labelled", str(path))
    assert process.returncode not in (0, None)
    assert str(path) in process.stderr
    assert "Traceback" not in process.stderr


def test_few_questions_promise_nothing_rather_than_too_much(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "few.jsonl", labelled_rows(60, signal=True))
    line = route(path, "--alpha", "0.01")
    assert line["accepted_share"] == 0
    assert line["cost_vs_best_baseline"] == pytest.approx(1)
    assert "cannot guarantee" in line["verdict"]


@pytest.mark.parametrize("small", [0.0, 1.0])
def test_a_small_model_that_is_always_right_or_always_wrong_needs_no_router(
    tmp_path: Path, small: float
) -> None:
    rows = labelled_rows(80, signal=True, small=small, big=1.0)
    line = route(write_rows(tmp_path / "same.jsonl", rows))
    assert not line["pays"]
    assert line["risk_held_share"] == 1
