"""`bench tool-data`: every published file of tool use, and all that was not read of it."""

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
    """What a reader sees, and the line of JSON."""
    done = bench("tool-data", "--data", str(folder), "--json")
    assert done.returncode == 0, done.stderr
    *shown, line = done.stdout.splitlines()
    return "\n".join(shown), json.loads(line)


@needs_data
def test_the_published_files_have_as_many_records_as_were_published() -> None:
    shown, found = told(Path(os.environ[VARIABLE]))
    assert {one["reader"]: one["records"] for one in found["read"]} == {
        "BFCL, simple_python": 400, "BFCL, multiple": 200, "BFCL, parallel": 200,
        "BFCL, parallel_multiple": 200, "BFCL, irrelevance": 240,
        "APIBench, huggingface, eval": 911, "APIBench, tensorflow, eval": 688,
        "APIBench, torchhub, eval": 186, "APIBench, torchhub, train": 837,
        "APIBench, huggingface, APIs": 936, "APIBench, tensorflow, APIs": 696,
        "APIBench, torchhub, APIs": 94, "ToolAlpaca": 100,
        "ToolBench, answers": 13, "ToolBench, queries": 12, "ToolBench, responses": 14,
    }  # fmt: skip
    files = {one["reader"]: one["files"] for one in found["read"]}
    assert (files["ToolBench, answers"], sum(files.values())) == (15, 51)
    assert not any(name.startswith("tool/") for name in found["unknown"])
    assert found["skipped"] == 4
    [answers] = [one for one in found["read"] if one["skipped"]]
    assert [one["reason"] for one in answers["skipped"]].count("no chain") == 2
    assert "no chain: 2 (G1_answer/69_ChatGPT" in " ".join(shown.split())
    [apis] = [one for one in found["read"] if one["unusable"]]
    assert (apis["reader"], len(apis["unusable"])) == ("APIBench, huggingface, APIs", 8)


def test_whatever_cannot_be_read_is_named_and_nothing_is_an_error(tmp_path: Path) -> None:
    write(tmp_path / "a/BFCL_v4_multiple.json", QUESTION, "{")
    write(tmp_path / "b/BFCL_v4_multiple.json", QUESTION)
    write(tmp_path / "b/possible_answer/BFCL_v4_multiple.json", ANSWER, {**ANSWER, "id": "q_9"})
    write(tmp_path / "c/torchhub_train.json", APIBENCH, {**APIBENCH, "code": "Do it."})
    write(tmp_path / "c/torchhub_api.jsonl", API, {**API, "api_call": "./run.sh"}, "{")
    hostile = {"Name": "\x1b[2J[red]", "Function_Description": {}, "Instructions": ["a"]}
    write(tmp_path / "c/eval_simulated.json", json.dumps([{**hostile, "Golden_Answers": [[]]}]))
    for part in ("answer", "instruction", "toolenv/tools", "test_query_ids"):
        write(tmp_path / "d" / part / "x.json", "{")
    shown, found = told(tmp_path)
    trouble = {
        one["where"]: [(each["where"], each["reason"]) for each in one["skipped"] + one["unusable"]]
        for one in found["read"]
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
            ("torchhub[1]", "an API that is no call"),
        ],
        "c/torchhub_train.json": [("torchhub_train.json:2", "no instruction")],
        "d/answer": [("x.json", "not JSON")],
        "d/instruction": [("x.json", "not JSON")],
        "d/test_query_ids": [("test_query_ids", "not a list of query ids")],
        "d/toolenv/tools": [("x.json", "not JSON")],
    }
    assert (found["records"], found["skipped"], found["unknown"]) == (4, 10, [])
    assert "[red]" in shown
    assert "\x1b" not in shown


def test_files_that_no_reader_knows_are_named_too(tmp_path: Path) -> None:
    """Also a second copy, of which the reader takes the first, and answers without questions."""
    write(tmp_path / "torchhub_eval.json", APIBENCH)
    (tmp_path / "torchhub_eval.json.xz").write_bytes(lzma.compress(b""))
    write(tmp_path / "possible_answer/BFCL_v4_parallel.json", ANSWER)
    write(tmp_path / "answer/notes.txt", "mine")
    shown, found = told(tmp_path)
    assert found["unknown"] == [
        "answer/notes.txt", "possible_answer/BFCL_v4_parallel.json", "torchhub_eval.json.xz",
    ]  # fmt: skip
    assert "1 file: 1 record, 0 skipped; 3 files that no reader knows: answer/notes.txt, " in shown


def test_of_each_reason_the_first_places_are_shown_and_all_are_in_the_line_of_json(
    tmp_path: Path,
) -> None:
    write(tmp_path / "torchhub_eval.json", *["{"] * 9)
    done = bench("tool-data", "--data", str(tmp_path), "--first", "1", "--json")
    assert "not JSON: 9 (torchhub_eval.json:1, …)" in " ".join(done.stdout.split())
    [read] = json.loads(done.stdout.splitlines()[-1])["read"]
    assert len(read["skipped"]) == 9


def test_no_folder_is_an_error_that_says_where_the_data_come_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    done = bench("tool-data")
    assert (done.returncode, done.stdout) == (1, "")
    assert "tangqiaoyu/ToolAlpaca" in done.stderr
    done = bench("tool-data", "--data", str(tmp_path / "absent"))
    assert "there is no such folder" in done.stderr
