"""BFCL's live categories, calls where none is wanted, and ToolAlpaca's real APIs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from loopline.agents.records import (
    Candidate,
    Decision,
    Outcome,
    Step,
    StepTimings,
    ToolCall,
    Trajectory,
)
from loopline.bench.datasets import Request, bfcl, toolalpaca
from loopline.bench.output import ManifestItem, manifest_items
from loopline.bench.tools import first_calls
from loopline.bench.tools.bfcl import BfclJudge, load
from tests.agents.conversations import a_run, says
from tests.bench.test_tool_datasets import ANSWER, QUESTION, write

CALL = ToolCall(id="1", name="f", arguments={"n": 1})


def question(category: str, folder: Path) -> ManifestItem:
    write(folder / f"BFCL_v4_{category}.json", QUESTION)
    if category not in bfcl.WITHOUT_ANSWERS:
        write(folder / f"possible_answer/BFCL_v4_{category}.json", ANSWER)
    (item,) = manifest_items(load(Request(category, data=folder)).items)
    return item


def answered(text: str, *calls: ToolCall) -> Trajectory:
    call = says(text).model_copy(update={"tool_calls": calls})
    step = Step(
        run_id="run",
        turn=0,
        agent="planner",
        candidates=(Candidate(calls=(call,)),),
        decision=Decision(kind="answer"),
        timings=StepTimings(started=0.0, ended=1.0),
        worker="worker",
    )
    return Trajectory(
        run=a_run("completion"),
        steps=(step,),
        outcome=Outcome.ANSWERED,
        answer=text or None,
        ended=1.0,
    )


SILENT = ("No function can do that.", "I can't; f would take a number.", "")
CALLING = (
    "[f(n=1)]",
    '{"name": "f", "arguments": {"n": 1}}',
    "Of course:\n[f(n=1)]",
    "I call it:\n```python\nf(n=1)\n```\nDone.",
    '<tool_call>\n{"name": "f", "arguments": {"n": 1}}\n</tool_call>',
)


@pytest.mark.parametrize("category", ["irrelevance", "live_irrelevance"])
def test_any_call_is_wrong_if_no_call_is_wanted(tmp_path: Path, category: str) -> None:
    """In any format, and even next to words that say otherwise."""
    item = question(category, tmp_path)
    judge = BfclJudge()
    for text in SILENT:
        called = judge.judge(answered(text, CALL), item)
        assert not called.verdicts["ast"], f"{text!r} and a call"
        assert judge.judge(answered(text), item).verdicts["ast"] is bool(text)
    for text in CALLING:
        assert not judge.judge(answered(text), item).verdicts["ast"], text


def test_a_call_in_its_own_field_is_judged_like_one_in_the_text(tmp_path: Path) -> None:
    item = question("simple_python", tmp_path)
    judge = BfclJudge()
    assert judge.judge(answered("", CALL), item).verdicts["ast"]
    wrong_call = CALL.model_copy(update={"arguments": {"n": 2}})
    assert not judge.judge(answered("", wrong_call), item).verdicts["ast"]
    assert judge.judge(answered("[f(n=1)]"), item).verdicts["ast"]


def test_live_relevance_requires_any_call(tmp_path: Path) -> None:
    item = question("live_relevance", tmp_path)
    assert item.gold == "any call"
    judge = BfclJudge()
    assert judge.judge(answered("[f(n=7)]"), item).verdicts["ast"]
    assert judge.judge(answered("", CALL), item).verdicts["ast"]
    assert not judge.judge(answered("I would rather not."), item).verdicts["ast"]


def test_the_live_categories_form_a_split_that_is_not_part_of_all(tmp_path: Path) -> None:
    for category in bfcl.CATEGORIES:
        question(category, tmp_path)
    split_of = {
        split: {str(item.about["split"]) for item in load(Request(split, data=tmp_path)).items}
        for split in ("all", "live", "live_parallel")
    }
    assert split_of["all"] == set(bfcl.WRITTEN)
    assert split_of["live"] == set(bfcl.LIVE)
    assert split_of["live_parallel"] == {"live_parallel"}


def test_a_question_without_any_function_is_read(tmp_path: Path) -> None:
    """Four questions of live_irrelevance are published without functions."""
    write(tmp_path / "BFCL_v4_live_irrelevance.json", {**QUESTION, "function": []})
    assert len(bfcl.load("live_irrelevance", tmp_path).records) == 1


def test_toolalpaca_s_questions_on_real_apis_omit_the_api_keys(tmp_path: Path) -> None:
    """An instruction does not contain the key, and every caller of the API has it."""
    parameters = {"key": "Required. string. Your key.", "q": "Required. string. What."}
    api = {
        "Name": "A",
        "Authentication": {"key": "***"},
        "Function_Description": {"f": f"Finds.\nParameters: {json.dumps(parameters)}\nOutput: x."},
        "Instructions": ["Find x."],
        "Golden_Answers": [
            [{"Action": "f", "Action_Input": json.dumps({"key": "abc", "q": "x"})}],
        ],
    }
    write(tmp_path / "eval_real.json", json.dumps([api]))
    (read,) = toolalpaca.load(tmp_path, "real").records
    assert read.golden[0].arguments == {"q": "x"}
    (record,) = first_calls.read_first_calls(tmp_path, "toolalpaca_real").records
    assert record.tools[0].parameters["required"] == ["q"]
    assert "Your key" not in json.dumps(record.tools[0].model_dump(mode="json"))
