"""Small documents that resemble real ones, and the exact request of each of their calls."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("jsonschema", reason="needs make install")

from loopline.workers.tool_sources import openapi_document
from loopline.workers.tool_sources.openapi_child import Question, answer_question
from tests.workers.tool_sources.http_server import listening
from tests.workers.tool_sources.joined import joined, source
from tests.workers.tool_sources.recording_api import RecordedRequest, RecordingApi

FOLDER = Path(__file__).with_name("cases") / "openapi"
CASES: list[dict[str, Any]] = [
    case for case in json.loads((FOLDER / "cases.json").read_text()) if "file" in case
]
PREFIX = "s__"


async def _here(_module: str, payload: bytes, *, max_answer_bytes: int) -> bytes:
    """Do the child's work without the second that a process takes to start."""
    question, _, raw = payload.partition(b"\n")
    answer = answer_question(Question.model_validate_json(question), raw)
    assert len(answer) <= max_answer_bytes
    return answer


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['id']} {case['file']}")
async def test_this_kind_of_document_is_read_and_called_as_intended(
    case: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openapi_document, "ask_child", _here)
    api = RecordingApi(case.get("server_answers", {}))
    async with listening(api.app()) as url:
        settings = source(openapi=str(FOLDER / case["file"]), base_url=_base(url, case))
        async with joined(s=settings) as sources:
            state = sources.state()["s"]
            names = {spec.name for spec in sources.specs}
            _check_state(case, state, names)
            for call in case["calls"]:
                before = len(api.requests)
                answer = await sources.call(PREFIX + call["tool"], call["arguments"])
                request = api.requests[-1] if len(api.requests) > before else None
                problems = _problems(call["right"], answer, request, state)
                assert not problems, (call, problems)


def _base(url: str, case: dict[str, Any]) -> str:
    return url + case.get("base_path", "")


def _check_state(case: dict[str, Any], state: dict[str, Any], names: set[str]) -> None:
    for text in case.get("trouble_contains", []):
        assert text in state["trouble"]
    offered = case.get("offered")
    if isinstance(offered, int):
        assert len(names) == offered, state
    elif offered is not None:
        assert names == {PREFIX + name for name in offered}
    for name, why in case.get("left_out", {}).items():
        text = [entry for entry in state["left_out"] if entry.startswith(f"{name}: ")]
        sent_right = "offered and sent right" in case.get("note", "") and PREFIX + name in names
        assert sent_right or (text and why in text[0]), state


def _problems(
    right: dict[str, Any],
    answer: dict[str, Any],
    request: RecordedRequest | None,
    state: dict[str, Any],
) -> str:
    """Return the differences; empty if there are none."""
    if "any_of" in right:
        ways = [_problems(way, answer, request, state) for way in right["any_of"]]
        return "" if "" in ways else "; ".join(ways)
    result, error = str(answer.get("result")), str(answer.get("error"))
    state_text = json.dumps(state, ensure_ascii=False)
    wrong = [
        *(f"no {part!r} in {answer}" for part in right.get("result_contains", [])
          if part not in result),
        *(f"no {part!r} in {answer}" for part in right.get("error_contains", [])
          if part not in error),
        *(f"{part!r} is not left out" for part in right.get("left_out_contains", [])
          if not any(entry.startswith(f"{part}: ") for entry in state["left_out"])),
        *(f"no {part!r} in {state_text}" for part in right.get("trouble_contains", [])
          if part not in state["trouble"]),
    ]  # fmt: skip
    if "result" in right and answer != {"result": right["result"]}:
        wrong.append(f"the result is {answer}")
    if "raw_query" in right and (request is None or request.query != right["raw_query"]):
        wrong.append(f"the query is {request and request.query}")
    if "request" in right:
        wrong += _differences(right["request"], answer, request)
    return "; ".join(wrong)


def _differences(
    wanted: dict[str, Any], answer: dict[str, Any], request: RecordedRequest | None
) -> list[str]:
    if request is None:
        return [f"no request was sent: {answer}"]
    got: dict[str, Any] = {
        "method": request.method,
        "path": request.path,
        "query": request.pairs,
        "content_type": ",".join(request.header("content-type")),
    }
    if "form" in wanted:
        got["form"] = request.form
        if got["content_type"] != "application/x-www-form-urlencoded":
            return [f"it is sent as {got['content_type']}"]
    if "json" in wanted:
        got["json"] = json.loads(request.body)
    return [
        f"{key} is {got[key]!r}, not {value!r}"
        for key, value in {"query": [], **wanted}.items()
        if got[key] != value
    ]
