"""`bench route` on label files in common formats."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.bench.command_line import bench
from tests.trainers.gsm8k_answers import Style, gsm8k_rows
from tests.trainers.labelled_answers import labelled_rows, write_rows

needs_data = pytest.mark.skipif(
    "LOOPLINE_DATA" not in os.environ, reason="LOOPLINE_DATA is not set"
)


def route(path: Path, *options: str) -> dict[str, Any]:
    process = bench("route", "--labelled", str(path), "--splits", "20", "--json", *options)
    assert process.returncode == 0, process.stderr
    (line,) = process.stdout.splitlines()
    return json.loads(line)


@needs_data
@pytest.mark.parametrize("style", ["marks", "prose", "latex"])
def test_a_router_pays_from_solutions_of_word_problems_only(tmp_path: Path, style: Style) -> None:
    line = route(write_rows(tmp_path / "gsm8k.jsonl", gsm8k_rows(500, style=style)))
    assert line["risk_held_share"] >= 0.95
    assert line["cost_vs_best_baseline"] < 1
    assert line["signal"]["auc"] > 0.7
    assert line["estimated_costs"] == 500


def test_lines_can_come_from_any_program(tmp_path: Path) -> None:
    rows = labelled_rows(120, signal=True)
    for at, row in enumerate(rows):
        row["id"] = at
        row["model"] = {"nobody": "reads this"}
        row["big"]["right"] = int(row["big"]["right"])
        row["small"]["right"] = float(row["small"]["right"])
        row["small"] |= {"logprobs": None, "samples": None, "cost": None}
    rows[3]["small"]["text"] = None
    rows[4]["question"] = "Ω\u2028ﬁve 数学 \ud83e\udd86 " + rows[4]["question"]
    rows[5]["small"]["text"] = "so. " * 50_000 + rows[5]["small"]["text"]
    lines = [json.dumps(row, ensure_ascii=at % 2 == 0) for at, row in enumerate(rows)]
    path = tmp_path / "windows.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + "\r\n\r\n".join([*lines, lines[-1]]).encode())
    line = route(path)
    assert line["questions"] == 120
    assert "repeat another one word for word, and are left out: 1" in line["source"]


@pytest.mark.parametrize(
    "form",
    [
        {"costs": {"small": 0.5, "big": 2.0}},
        {"cost": {"small": 0.5, "big": 2.0}},
        {"small_cost": 0.5, "big_cost": 2.0},
    ],
)
def test_costs_can_be_top_level_fields_of_a_line(tmp_path: Path, form: dict[str, Any]) -> None:
    rows = [row | form for row in labelled_rows(60, signal=True)]
    line = route(write_rows(tmp_path / "costs.jsonl", rows))
    rules = {rule["name"]: rule["cost"]["estimate"] for rule in line["comparison"]["rules"]}
    assert rules["small"] == pytest.approx(0.5)
    assert rules["big"] == pytest.approx(2.0)
    assert line["estimated_costs"] == 0


@pytest.mark.parametrize(
    "logprobs",
    [
        {"content": [{"token": "a", "logprob": -0.5}, {"token": "b", "logprob": -1}]},
        {"tokens": ["a", "b"], "token_logprobs": [None, -0.5]},
        [{"token": "a", "logprob": -0.5}],
        [None, -0.5],
    ],
)
def test_log_probabilities_can_have_the_format_of_endpoints(tmp_path: Path, logprobs: Any) -> None:
    rows = labelled_rows(60, signal=True)
    for row in rows:
        row["small"]["logprobs"] = logprobs
    assert route(write_rows(tmp_path / "logprobs.jsonl", rows))["has_logprobs"]


@pytest.mark.parametrize("count", [10, 20])
def test_a_handful_of_questions_gets_a_verdict_rather_than_an_error(
    tmp_path: Path, count: int
) -> None:
    line = route(write_rows(tmp_path / "few.jsonl", labelled_rows(count, signal=True)))
    assert "cannot guarantee" in line["verdict"]
    assert line["risk_held_share"] == 1


@pytest.mark.parametrize("costs", [{"small": 0, "big": 0}, {"small": 0, "big": 1}])
def test_models_that_cost_nothing_are_compared_without_a_division(
    tmp_path: Path, costs: dict[str, float]
) -> None:
    rows = [row | {"costs": costs} for row in labelled_rows(120, signal=True)]
    line = route(write_rows(tmp_path / "free.jsonl", rows))
    assert line["cost_vs_best_baseline"] <= 1
    assert line["risk_held_share"] >= 0.95


def test_samples_are_a_baseline_and_are_drawn_only_if_worth_their_price(tmp_path: Path) -> None:
    lines: list[dict[str, Any]] = []
    for name, price in (("cheap", 0.0001), ("dear", 1.0)):
        rows = labelled_rows(300, signal=False)
        for at, row in enumerate(rows):
            right = row["small"]["right"]
            others = [row["small"]["text"]] * 3 if right else ["#### 1", "#### 2", "#### 3"]
            row["small"] |= {"samples": others[: 1 + at % 3], "samples_cost": price}
            row["costs"] = {"small": 0.1, "big": 1.0}
        lines.append(route(write_rows(tmp_path / f"{name}.jsonl", rows)))
    cheap, dear = lines
    names = {entry["name"] for entry in cheap["comparison"]["baselines"]}
    assert "entropy" in names
    assert cheap["sampling_share"] > 0.9
    assert cheap["accepted_share"] > 0.3
    assert dear["sampling_share"] == 0
    assert dear["cost_vs_best_baseline"] == pytest.approx(1, abs=0.05)


def test_repeated_questions_are_reported(tmp_path: Path) -> None:
    rows = labelled_rows(60, signal=True)
    twice = [*rows, *({**row, "id": f"again {row['id']}"} for row in rows[:7])]
    line = route(write_rows(tmp_path / "twice.jsonl", twice))
    assert line["questions"] == 67
    assert "lines that share their question with another line: 7" in line["source"]


def test_an_id_with_two_different_answers_is_refused(tmp_path: Path) -> None:
    rows = labelled_rows(60, signal=True)
    rows[5] = {**rows[5], "id": rows[4]["id"]}
    process = bench("route", "--labelled", str(write_rows(tmp_path / "ids.jsonl", rows)))
    assert process.returncode != 0
    assert "ids.jsonl:6: line 5 has the same id 'q4', with other answers" in process.stderr
