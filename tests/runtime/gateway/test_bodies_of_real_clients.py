"""Bodies as clients of other servers write them: accepted, or refused by the field at fault."""

from __future__ import annotations

import gzip
from typing import Any

import httpx
import orjson
import pytest

from loopline.runtime.gateway.chat_request import ChatRequest
from loopline.runtime.gateway.errors import ApiError, validated
from loopline.runtime.gateway.responses_request import ResponseRequest
from tests.runtime.gateway.conftest import asked
from tests.runtime.gateway.scripted_gateway import ScriptedGateway

USER = {"role": "user", "content": "Say hi"}
CALL = {"id": "c1", "type": "function", "function": {"name": "now", "arguments": "{}"}}
NOW = {"type": "function", "function": {"name": "now", "parameters": {"type": "object"}}}
CACHED = {"cache_control": {"type": "ephemeral"}}


def assistant(**fields: Any) -> dict[str, Any]:
    return {"messages": [USER, {"role": "assistant", "content": "hi", **fields}, USER]}


ACCEPTED: dict[str, dict[str, Any]] = {
    "null in fields that are not listed": dict.fromkeys(
        ("prediction", "audio", "web_search_options", "functions", "function_call", "top_k")
    ),
    "null in fields that are": dict.fromkeys(("tools", "stop", "n", "stream_options", "user")),
    "LiteLLM's fields of an answer": assistant(
        provider_specific_fields={"a": 1}, thinking_blocks=[], reasoning_content=None
    ),
    "OpenRouter's fields of an answer": assistant(
        reasoning="x", reasoning_details=[{"type": "reasoning.text", "text": "x"}]
    ),
    "null in fields of an answer": assistant(images=None, tool_plan=None, audio=None),
    "Gemini's signature of a call": assistant(
        tool_calls=[{**CALL, "extra_content": {"google": {"thought_signature": "x"}}}]
    ),
    "a mark of a cache at a part": {
        "messages": [{"role": "system", "content": [{"type": "text", "text": "x", **CACHED}]}, USER]
    },
    "a mark of a cache at a message": {"messages": [{**USER, **CACHED}]},
    "a mark of a cache at a tool": {"tools": [{**NOW, **CACHED}]},
    "no tools, and a choice": {"tools": [], "tool_choice": "auto"},
    "an empty list of stop words": {"stop": []},
    "both limits": {"max_tokens": 5, "max_completion_tokens": 6},
}


@pytest.mark.parametrize("fields", ACCEPTED.values(), ids=ACCEPTED)
def test_fields_that_do_not_change_the_answer_are_accepted(fields: dict[str, Any]) -> None:
    validated(ChatRequest, {**asked("Say hi"), **fields}, strict=True)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "llama.cpp's schema": (
        {"response_format": {"type": "json_object", "schema": {"type": "object"}}},
        "response_format.schema",
    ),
    "an empty stop word": ({"stop": ""}, "stop"),
    "an empty stop word in a list": ({"stop": ["a", ""]}, "stop[1]"),
    "no part": ({"messages": [{"role": "user", "content": []}]}, "messages[0].content"),
    "Anthropic's choice": (
        {"tools": [NOW], "tool_choice": {"type": "function", "function": {"name": "now"},
                                         "disable_parallel_tool_use": True}},
        "tool_choice.disable_parallel_tool_use",
    ),
    "a picture of an answer": (assistant(images=[{"a": 1}]), "messages[1].images"),
}  # fmt: skip


@pytest.mark.parametrize(("fields", "param"), REFUSED.values(), ids=REFUSED)
def test_fields_that_would_be_ignored_are_refused_by_name(
    fields: dict[str, Any], param: str
) -> None:
    with pytest.raises(ApiError) as refused:
        validated(ChatRequest, {**asked("Say hi"), **fields}, strict=True)
    assert refused.value.body["error"]["param"] == param


def test_null_in_an_unknown_field_of_a_responses_request_is_accepted() -> None:
    validated(
        ResponseRequest, {"model": "m", "input": "x", "modalities": None, "text": {"a": None}}
    )


async def test_a_byte_order_mark_is_accepted_and_a_compressed_body_refused(
    http: httpx.AsyncClient,
) -> None:
    body = orjson.dumps(asked("Say hi", max_tokens=8))
    marked = await http.post("chat/completions", content=b"\xef\xbb\xbf" + body)
    assert marked.status_code == 200, marked.text
    zipped = await http.post(
        "chat/completions", content=gzip.compress(body), headers={"content-encoding": "gzip"}
    )
    assert zipped.status_code == 415
    assert "without compression" in zipped.json()["error"]["message"]


def test_the_error_for_a_wrong_path_names_the_right_one(gateway: ScriptedGateway) -> None:
    with gateway.client() as client:
        for path in ("/chat/completions", "/v1//chat/completions", "/v1/v1/chat/completions",
                     "/v1/completions", "/api/chat", "/v1/messages"):  # fmt: skip
            response = client.post(path, json={})
            assert response.status_code == 404, path
            assert "/v1/chat/completions" in response.json()["error"]["message"]
        assert client.get("/v1/models/").json() == client.get("/v1/models").json()
        assert "/openapi.json" in client.get("/v1/nothing").json()["error"]["message"]
