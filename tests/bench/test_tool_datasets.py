"""Reading BFCL, APIBench and ToolAlpaca as published, and the reports about unreadable records."""

from __future__ import annotations

import json
import lzma
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from loopline.bench.checkers.apibench import ApiDatabase, ApiVerdict
from loopline.bench.datasets import apibench, bfcl, toolalpaca
from loopline.bench.datasets.gsm8k import VARIABLE
from loopline.bench.errors import DataError, UsageError

needs_data = pytest.mark.skipif(
    not os.environ.get(VARIABLE), reason=f"{VARIABLE} does not point to the published data"
)

FUNCTION = {
    "name": "f",
    "description": "d",
    "parameters": {"type": "dict", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
}
QUESTION = {"id": "q_0", "question": [[{"role": "user", "content": "?"}]], "function": [FUNCTION]}
ANSWER = {"id": "q_0", "ground_truth": [{"f": {"n": [1]}}]}
API = {"domain": "D", "api_name": "x", "api_call": "f('x')", "description": None}
APIBENCH = {"code": "###Instruction: Do it.\n###Output: f", "api_call": "f('x')", "api_data": API}


def write(path: Path, *rows: Any) -> None:
    """JSON lines; a text is written unchanged."""
    path.parent.mkdir(parents=True, exist_ok=True)
    texts = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    path.write_text("\n".join(texts) + "\n", encoding="utf-8")


@needs_data
@pytest.mark.parametrize(
    ("category", "questions", "calls"),
    [("simple_python", 400, 400), ("multiple", 200, 200), ("parallel", 200, 540),
     ("parallel_multiple", 200, 607), ("irrelevance", 240, 0)],
)  # fmt: skip
def test_bfcl_is_read_completely(category: str, questions: int, calls: int) -> None:
    """As many as published, nothing skipped."""
    read = bfcl.load(category)
    assert (len(read.records), read.skipped) == (questions, ())
    assert sum(len(question.wanted) for question in read.records) == calls
    assert len({question.id for question in read.records}) == questions


@needs_data
@pytest.mark.parametrize(
    ("hub", "split", "questions"),
    [("huggingface", "eval", 911), ("tensorflow", "eval", 688), ("torchhub", "eval", 186),
     ("torchhub", "train", 837)],
)  # fmt: skip
def test_apibench_is_read_completely(hub: str, split: str, questions: int) -> None:
    """Even if the instruction has another marker or the output is missing."""
    read = apibench.load(hub, split=split)
    assert (len(read.records), read.skipped) == (questions, ())
    assert all(len(question.instruction) > 10 for question in read.records)
    assert not any("Output:" in question.instruction for question in read.records)


@needs_data
@pytest.mark.parametrize(
    ("hub", "apis", "unusable"),
    [("huggingface", 936, 8), ("tensorflow", 696, 0), ("torchhub", 94, 0)],
)
def test_the_hubs_databases_are_read_in_full(hub: apibench.Hub, apis: int, unusable: int) -> None:
    """A few entries are not calls (`./run.sh …`); the reader reports them."""
    read = apibench.load_apis(hub)
    assert (len(read.records), read.skipped) == (apis, ())
    assert len(ApiDatabase(hub, read.records).unusable) == unusable


@needs_data
@pytest.mark.parametrize(
    ("hub", "wrong"), [("huggingface", 14), ("tensorflow", 0), ("torchhub", 0)]
)
def test_the_published_references_are_right(hub: apibench.Hub, wrong: int) -> None:
    """The ceiling of every model: all except 14 that are not calls or in no database entry."""
    database = ApiDatabase(hub, apibench.load_apis(hub).records)
    verdicts = [
        database.check(question.reference, question.domain)
        for question in apibench.load(hub).records
    ]
    assert len(verdicts) - verdicts.count(ApiVerdict.RIGHT) == wrong


@needs_data
def test_toolalpaca_is_read_completely() -> None:
    """100 instructions for 10 APIs; 32 of 154 golden inputs contain a placeholder."""
    read = toolalpaca.load()
    assert (len(read.records), read.skipped) == (100, ())
    assert len({question.api for question in read.records}) == 10
    actions = [action for question in read.records for action in question.golden]
    assert Counter(action.arguments is None for action in actions) == {False: 122, True: 32}
    assert all("${" in action.written for action in actions if action.arguments is None)
    assert [action.name for action in actions if action.optional] == ["updateUserProfile"]


def test_unreadable_bfcl_lines_are_reported(tmp_path: Path) -> None:
    """Broken JSON, an unknown type, a question without answer, an answer without question."""
    odd = {**QUESTION, "id": "q_2", "function": [{**FUNCTION, "parameters": {
        "properties": {"n": {"type": "colour"}}}}]}  # fmt: skip
    elsewhere = {"id": "q_3", "ground_truth": [{"g": {}}]}
    write(
        tmp_path / "BFCL_v4_multiple.json",
        QUESTION, '{"id": "q_1", "que', "[]", odd, {**QUESTION, "id": "q_3"},
        {**QUESTION, "id": "q_4"}, QUESTION,
    )  # fmt: skip
    write(
        tmp_path / "possible_answer/BFCL_v4_multiple.json",
        ANSWER, {"id": "q_2", "ground_truth": [{"f": {}, "g": {}}]}, elsewhere,
        {**ANSWER, "id": "q_9"}, "nonsense", ANSWER,
        {"id": "q_8", "ground_truth": [{"f": {"n": [{"a": 1}]}}]},
    )  # fmt: skip
    read = bfcl.load("multiple", tmp_path)
    assert [question.id for question in read.records] == ["q_0"]
    assert [
        (record.where.removeprefix("possible_answer/"), record.reason) for record in read.skipped
    ] == [
        ("BFCL_v4_multiple.json:2", "not the expected fields"),
        ("BFCL_v4_multiple.json:5", "not JSON"),
        ("BFCL_v4_multiple.json:6", "a duplicate id"),
        ("BFCL_v4_multiple.json:7", "not the expected fields"),
        ("BFCL_v4_multiple.json:2", "not JSON"),
        ("BFCL_v4_multiple.json:3", "not the expected fields"),
        ("BFCL_v4_multiple.json:4", "not the expected fields"),
        ("BFCL_v4_multiple.json:5", "a wanted function is not on offer"),
        ("BFCL_v4_multiple.json:6", "a question without an answer"),
        ("BFCL_v4_multiple.json:7", "a question without an answer"),
        ("BFCL_v4_multiple.json", "an answer without a question"),
    ]
    assert [record.reason for record in read.skipped].count("not the expected fields") == 4


def test_unreadable_apibench_lines_are_reported(tmp_path: Path) -> None:
    write(
        tmp_path / "torchhub_eval.json",
        APIBENCH, {**APIBENCH, "code": "Do it."}, {**APIBENCH, "api_data": {}}, "{",
    )  # fmt: skip
    read = apibench.load("torchhub", tmp_path)
    assert [question.instruction for question in read.records] == ["Do it."]
    assert [(record.where, record.reason) for record in read.skipped] == [
        ("torchhub_eval.json:2", "no instruction"),
        ("torchhub_eval.json:3", "not the expected fields"),
        ("torchhub_eval.json:4", "not JSON"),
    ]


def test_unreadable_toolalpaca_records_are_reported(tmp_path: Path) -> None:
    golden = [{"Action": "f", "Action_Input": "{}"}]
    api = {"Name": "A", "Function_Description": {"f": "does"}, "Instructions": ["a", "b", "c"],
           "Golden_Answers": [golden, [], [{"Action": 1}]]}  # fmt: skip
    uneven = {**api, "Instructions": ["a"]}
    path = tmp_path / "eval_simulated.json"
    write(path, json.dumps([api, uneven, 3]))
    read = toolalpaca.load(tmp_path)
    assert [question.id for question in read.records] == ["A/0"]
    assert [(record.where, record.reason) for record in read.skipped] == [
        ("eval_simulated.json[0]: A/1", "no golden answer"),
        ("eval_simulated.json[0]: A/2", "not the expected fields"),
        ("eval_simulated.json[1]", "instructions and golden answers differ in number"),
        ("eval_simulated.json[2]", "not the expected fields"),
    ]
    path.write_text(json.dumps([api])[:-7])
    assert [record.reason for record in toolalpaca.load(tmp_path).skipped] == ["not JSON"]


def test_a_truncated_file_yields_the_records_before_the_break(tmp_path: Path) -> None:
    """A truncated archive loses its end, which is reported."""
    rows = "".join(json.dumps({**QUESTION, "id": f"q_{at}"}) + "\n" for at in range(5_000))
    path = tmp_path / "BFCL_v4_irrelevance.json.xz"
    path.write_bytes(lzma.compress(rows.encode(), preset=0)[:-400])
    read = bfcl.load("irrelevance", tmp_path)
    assert 0 < len(read.records) < 5_000
    assert [record.reason for record in read.skipped] == ["the file cannot be decompressed"]


def test_missing_data_are_reported_with_their_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No environment, no folder, no file; unknown names list the known ones."""
    monkeypatch.delenv(VARIABLE, raising=False)
    with pytest.raises(DataError, match=r"BFCL is not part of this project.*ShishirPatil/gorilla"):
        bfcl.load("multiple")
    with pytest.raises(DataError, match="there is no such folder"):
        apibench.load("torchhub", tmp_path / "absent")
    with pytest.raises(DataError, match=r"no file eval_simulated\.json.*tangqiaoyu/ToolAlpaca"):
        toolalpaca.load(tmp_path)
    with pytest.raises(UsageError, match="no category 'java' here; it has simple_python"):
        bfcl.load("java", tmp_path)
    with pytest.raises(UsageError, match="no hub 'pypi'; it has huggingface"):
        apibench.load_apis("pypi", tmp_path)
    with pytest.raises(UsageError, match="no split 'dev'; it has eval and train"):
        apibench.load("torchhub", tmp_path, split="dev")
