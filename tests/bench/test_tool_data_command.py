"""`bench tool-data`: every published file of tool use, and every unread part of it."""

from __future__ import annotations

import json
import lzma
import os
from pathlib import Path
from typing import Any

import pytest

from loopline.bench.datasets.gsm8k import VARIABLE
from tests.bench.command_line import bench
from tests.bench.test_tool_datasets import ANSWER, API, APIBENCH, QUESTION, write

needs_data = pytest.mark.skipif(
    not os.environ.get(VARIABLE), reason=f"{VARIABLE} does not point to the published data"
)


def told(folder: Path) -> tuple[str, dict[str, Any]]:
    """The visible output, and the JSON line."""
    process = bench("tool-data", "--data", str(folder), "--json")
    assert process.returncode == 0, process.stderr
    *lines, line = process.stdout.splitlines()
    return "\n".join(lines), json.loads(line)


@needs_data
def test_the_published_files_have_the_published_number_of_records() -> None:
    lines, report = told(Path(os.environ[VARIABLE]))
    assert {entry["reader"]: entry["records"] for entry in report["read"]} == {
        "BFCL, simple_python": 400, "BFCL, multiple": 200, "BFCL, parallel": 200,
        "BFCL, parallel_multiple": 200, "BFCL, irrelevance": 240,
        "APIBench, huggingface, eval": 911, "APIBench, tensorflow, eval": 688,
        "APIBench, torchhub, eval": 186, "APIBench, torchhub, train": 837,
        "APIBench, huggingface, APIs": 936, "APIBench, tensorflow, APIs": 696,
        "APIBench, torchhub, APIs": 94, "ToolAlpaca": 100,
        "ToolBench, answers": 13, "ToolBench, queries": 12, "ToolBench, responses": 14,
    }  # fmt: skip
    files = {entry["reader"]: entry["files"] for entry in report["read"]}
    assert (files["ToolBench, answers"], sum(files.values())) == (15, 51)
    assert not any(name.startswith("tool/") for name in report["unknown"])
    assert report["skipped"] == 4
    [answers] = [entry for entry in report["read"] if entry["skipped"]]
    assert [entry["reason"] for entry in answers["skipped"]].count("no chain") == 2
    assert "no chain: 2 (G1_answer/69_ChatGPT" in " ".join(lines.split())
    [apis] = [entry for entry in report["read"] if entry["unusable"]]
    assert (apis["reader"], len(apis["unusable"])) == ("APIBench, huggingface, APIs", 8)


def test_unreadable_records_are_reported_and_none_is_fatal(tmp_path: Path) -> None:
    write(tmp_path / "a/BFCL_v4_multiple.json", QUESTION, "{")
    write(tmp_path / "b/BFCL_v4_multiple.json", QUESTION)
    write(tmp_path / "b/possible_answer/BFCL_v4_multiple.json", ANSWER, {**ANSWER, "id": "q_9"})
    write(tmp_path / "c/torchhub_train.json", APIBENCH, {**APIBENCH, "code": "Do it."})
    write(tmp_path / "c/torchhub_api.jsonl", API, {**API, "api_call": "./run.sh"}, "{")
    hostile = {"Name": "\x1b[2J[red]", "Function_Description": {}, "Instructions": ["a"]}
    write(tmp_path / "c/eval_simulated.json", json.dumps([{**hostile, "Golden_Answers": [[]]}]))
    for part in ("answer", "instruction", "toolenv/tools", "test_query_ids"):
        write(tmp_path / "d" / part / "x.json", "{")
    lines, report = told(tmp_path)
    trouble = {
        entry["where"]: [
            (record["where"], record["reason"]) for record in entry["skipped"] + entry["unusable"]
        ]
        for entry in report["read"]
    }
    assert trouble == {
        "a/BFCL_v4_multiple.json": [
            ("BFCL_v4_multiple.json:1", "a question without an answer"),
            ("BFCL_v4_multiple.json:2", "not JSON"),
        ],
        "b/BFCL_v4_multiple.json": [
            ("possible_answer/BFCL_v4_multiple.json", "an answer without a question")
        ],
        "c/eval_simulated.json": [
            ("eval_simulated.json[0]: \x1b[2J[red]/0", "no golden answer"),
        ],
        "c/torchhub_api.jsonl": [
            ("torchhub_api.jsonl:3", "not JSON"),
            ("torchhub[1]", "an API that is not a call"),
        ],
        "c/torchhub_train.json": [("torchhub_train.json:2", "no instruction")],
        "d/answer": [("x.json", "not JSON")],
        "d/instruction": [("x.json", "not JSON")],
        "d/test_query_ids": [("test_query_ids", "not a list of query ids")],
        "d/toolenv/tools": [("x.json", "not JSON")],
    }
    assert (report["records"], report["skipped"], report["unknown"]) == (4, 10, [])
    assert "[red]" in lines
    assert "\x1b" not in lines


def test_files_unknown_to_every_reader_are_reported_too(tmp_path: Path) -> None:
    """Including a second copy, of which the reader takes the first, and answers without
    questions."""
    write(tmp_path / "torchhub_eval.json", APIBENCH)
    (tmp_path / "torchhub_eval.json.xz").write_bytes(lzma.compress(b""))
    write(tmp_path / "possible_answer/BFCL_v4_parallel.json", ANSWER)
    write(tmp_path / "answer/notes.txt", "mine")
    lines, report = told(tmp_path)
    assert report["unknown"] == [
        "answer/notes.txt", "possible_answer/BFCL_v4_parallel.json", "torchhub_eval.json.xz",
    ]  # fmt: skip
    assert "1 file: 1 record, 0 skipped; 3 files of unknown format: answer/notes.txt, " in lines


def test_the_first_locations_per_reason_are_shown_and_the_json_line_has_all(
    tmp_path: Path,
) -> None:
    write(tmp_path / "torchhub_eval.json", *["{"] * 9)
    process = bench("tool-data", "--data", str(tmp_path), "--first", "1", "--json")
    assert "not JSON: 9 (torchhub_eval.json:1, …)" in " ".join(process.stdout.split())
    [read] = json.loads(process.stdout.splitlines()[-1])["read"]
    assert len(read["skipped"]) == 9


def test_a_missing_folder_is_an_error_with_the_source_of_the_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    process = bench("tool-data")
    assert (process.returncode, process.stdout) == (1, "")
    assert "tangqiaoyu/ToolAlpaca" in process.stderr
    process = bench("tool-data", "--data", str(tmp_path / "absent"))
    assert "there is no such folder" in process.stderr
