"""Bodies as clients of other servers write them: accepted, or refused by the field at fault."""

from __future__ import annotations

import gzip
from typing import Any

import httpx
import orjson
import pytest
from pydantic import BaseModel

from loopline.runtime.gateway.chat_request import ChatRequest
from loopline.runtime.gateway.embeddings_api import EmbeddingsRequest
from loopline.runtime.gateway.errors import ApiError, validated
from loopline.runtime.gateway.responses_request import ResponseRequest
from loopline.runtime.gateway.runs_request import CreateRun, Feedback, ForkRun
from loopline.runtime.gateway.waiting_api import DecideApproval
from tests.runtime.gateway.conftest import asked
from tests.runtime.gateway.scripted_gateway import ScriptedGateway

USER = {"role": "user", "content": "Say hi"}
CALL = {"id": "c1", "type": "function", "function": {"name": "now", "arguments": "{}"}}
NOW = {"type": "function", "function": {"name": "now", "parameters": {"type": "object"}}}
CACHED = {"cache_control": {"type": "ephemeral"}}
BREAKPOINT = {"prompt_cache_breakpoint": {"mode": "explicit"}}
PARSED = {"name": "now", "arguments": "{}", "parsed_arguments": {"zone": None}}
SCHEMA = {"type": "object", "properties": {"sum": {"type": "integer"}}}


def assistant(**fields: Any) -> dict[str, Any]:
    return {"messages": [USER, {"role": "assistant", "content": "hi", **fields}, USER]}


def of_user(*parts: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": list(parts)}]}


def image(url: str, **fields: Any) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url, **fields}}


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
    "Qwen-Agent's notes in a message": assistant(extra={"function_id": "c1"}, tool_calls=[CALL]),
    "Perplexity's fields of an answer": assistant(citations=["https://there.is"], prefix=False),
    "a call's place in a stream": assistant(tool_calls=[{**CALL, "index": 0}]),
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
    "the parsed content and arguments of OpenAI's clients": assistant(
        parsed={"sum": 5}, tool_calls=[{**CALL, "function": PARSED}]
    ),
    "null in fields with a default": assistant(
        tool_calls=[{**CALL, "type": None, "function": {"name": "now", "arguments": None}}]
    ),
    "OpenAI's marks of a cache": {
        "prompt_cache_options": {"mode": "explicit"},
        **of_user({"type": "text", "text": "x", **BREAKPOINT}),
    },
    "vLLM's way to sample from all tokens": {"top_k": -1},
    "how much to think": {"reasoning_effort": "xhigh"},
    "vLLM's switches of the chat template": {"chat_template_kwargs": {"enable_thinking": False}},
    "an image in its own size": of_user(image("https://there.is/one.png", detail="original")),
}


def test_the_usual_verbosity_requests_nothing() -> None:
    usual = {**asked("Say hi"), "verbosity": "medium"}
    assert validated(ChatRequest, usual, strict=True).generation.chosen == {}


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
    "a message to continue": (assistant(prefix=True), "messages[1].prefix"),
    "a picture of an answer": (assistant(images=[{"a": 1}]), "messages[1].images"),
    "strict next to the schema": (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "x"}, "strict": True}},
        "response_format.strict",
    ),
    "a format without a type": ({"response_format": {"schema": {}}}, "response_format"),
    "an image without an object": (
        of_user({"type": "image_url", "image_url": "https://there.is/one.png"}),
        "messages[0].content[0].image_url",
    ),
    "a text's unknown field": (
        of_user({"type": "text", "text": "x", "mood": "sad"}),
        "messages[0].content[0].mood",
    ),
    "the Responses API's choice": (
        {"tools": [NOW], "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": []}},
        "tool_choice.allowed_tools",
    ),
    "an allowed choice's unknown field": (
        {
            "tools": [NOW],
            "tool_choice": {
                "type": "allowed_tools",
                "allowed_tools": {"mode": "auto", "tools": [NOW]},
                "strict": True,
            },
        },
        "tool_choice.allowed_tools.tools[0].function.parameters",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("fields", "param"), REFUSED.values(), ids=REFUSED)
def test_fields_that_would_be_ignored_are_refused_by_name(
    fields: dict[str, Any], param: str
) -> None:
    with pytest.raises(ApiError) as refused:
        validated(ChatRequest, {**asked("Say hi"), **fields}, strict=True)
    assert refused.value.body["error"]["param"] == param


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        (assistant(audio={"id": "a"}), "messages[1].audio"),
        (assistant(function_call={"name": "now"}), "messages[1].function_call"),
    ],
)
def test_a_parameter_that_nothing_applies_is_refused_as_unsupported(
    fields: dict[str, Any], param: str
) -> None:
    with pytest.raises(ApiError) as refused:
        validated(ChatRequest, {**asked("Say hi"), **fields}, strict=True)
    assert (refused.value.param, refused.value.code) == (param, "unsupported_parameter")


@pytest.mark.parametrize("fields", [of_user("x"), {"messages": ["x"]}, {"tools": [5]}])
def test_an_error_names_no_class_of_the_gateway(fields: dict[str, Any]) -> None:
    with pytest.raises(ApiError, match="it must be an object"):
        validated(ChatRequest, {**asked("Say hi"), **fields}, strict=True)


@pytest.mark.parametrize(
    ("model", "required"),
    [
        (CreateRun, {"workflow": "solo", "prompt": "x"}),
        (ForkRun, {"at_turn": 0}),
        (Feedback, {"value": 1.0}),
        (EmbeddingsRequest, {"model": "m", "input": "x"}),
        (DecideApproval, {"decision": "deny", "digest": "0" * 64}),
    ],
)
def test_null_is_unset_on_every_route(model: type[BaseModel], required: dict[str, Any]) -> None:
    nulls = dict.fromkeys((*model.model_fields, "unknown"))
    assert validated(model, {**nulls, **required}, strict=True) == validated(model, required)


def test_the_description_of_a_format_reaches_the_model_with_its_schema() -> None:
    form = {"name": "total", "schema": SCHEMA, "description": "A sum."}
    chat = {"response_format": {"type": "json_schema", "json_schema": form}}
    text = {"model": "m", "input": "x", "text": {"format": {"type": "json_schema", **form}}}
    for request in (
        validated(ChatRequest, {**asked("Say hi"), **chat}, strict=True),
        validated(ResponseRequest, text, strict=True),
    ):
        assert request.options.json_schema == {"description": "A sum.", **SCHEMA}


@pytest.mark.parametrize("body", [{"stop": [""]}, {"stop": ["a", ""]}])
def test_a_run_takes_no_empty_stop_text(body: dict[str, Any]) -> None:
    with pytest.raises(ApiError) as refused:
        validated(CreateRun, {"workflow": "solo", "prompt": "x", "generation": body})
    assert (refused.value.param or "").startswith("generation.stop[")


def test_a_request_of_codex_is_accepted() -> None:
    body: dict[str, Any] = {
        "model": "llm", "instructions": "Help.", "input": [{**USER, "type": "message"}],
        "tools": [{"type": "function", "name": "now", "description": "", "strict": False,
                   "parameters": {"type": "object", "properties": {}}}],
        "tool_choice": "auto", "parallel_tool_calls": False, "reasoning": None, "store": False,
        "stream": True, "include": [], "prompt_cache_key": "k",
        "client_metadata": {"x-codex-installation-id": "i"},
    }  # fmt: skip
    validated(ResponseRequest, body)


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


@pytest.mark.parametrize(("text", "status"), [("True", 200), ("1", 200), ("maybe", 400)])
async def test_a_stored_answer_is_streamed_in_any_spelling_of_true(
    http: httpx.AsyncClient, text: str, status: int
) -> None:
    run_id = (await http.post("chat/completions", json=asked("Name a fruit."))).json()["id"]
    response_id = (await http.post("responses", json={"model": "llm", "input": "Hi"})).json()["id"]
    for path in (f"chat/completions/{run_id}", f"responses/{response_id}"):
        answer = await http.get(path, params={"stream": text})
        assert answer.status_code == status, answer.text
        assert answer.headers["content-type"].startswith("text/event-stream") == (status == 200)
    items = await http.get(f"responses/{response_id}/input_items?before=x")
    assert (items.status_code, items.json()["error"]["param"]) == (400, "before")


def test_the_error_for_a_wrong_path_names_the_right_one(gateway: ScriptedGateway) -> None:
    with gateway.client() as client:
        for path in ("/chat/completions", "/v1//chat/completions", "/v1/v1/chat/completions",
                     "/v1/completions", "/api/chat", "/v1/messages"):  # fmt: skip
            response = client.post(path, json={})
            assert response.status_code == 404, path
            assert "/v1/chat/completions" in response.json()["error"]["message"]
        assert client.get("/v1/models/").json() == client.get("/v1/models").json()
        assert client.get("/v1/models/llm/").json() == client.get("/v1/models/llm").json()
        assert "/openapi.json" in client.get("/v1/nothing").json()["error"]["message"]
