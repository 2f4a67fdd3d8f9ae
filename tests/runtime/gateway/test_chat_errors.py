"""Errors have OpenAI's shape: a status, a type, a code, and the field at fault."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.runtime.gateway.conftest import asked
from tests.runtime.gateway.scripted_gateway import ScriptedGateway

NOW = {"type": "function", "function": {"name": "now", "parameters": {"type": "object"}}}
NO_CALL = [{"role": "tool", "content": "x", "tool_call_id": "call_1"}]


def image(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


WRONG_FIELDS: dict[str, tuple[dict[str, Any], str, str | None]] = {
    "no model": ({"model": None}, "model", "invalid_value"),
    "no messages": ({"messages": []}, "messages", "invalid_value"),
    "unknown role": (
        {"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role", "invalid_value"
    ),
    "content is a number": (
        {"messages": [{"role": "user", "content": 5}]}, "messages[0].content", "invalid_value"
    ),
    "no content": ({"messages": [{"role": "user"}]}, "messages[0].content", "invalid_value"),
    "part without text": (
        {"messages": [{"role": "user", "content": [{"type": "text"}]}]},
        "messages[0].content[0].text",
        "missing_required_parameter",
    ),
    "an image for a model of text": (
        {"messages": [{"role": "user", "content": [image("https://there.is/one.png")]}]},
        "messages",
        "unsupported_value",
    ),
    "an image of an assistant": (
        {"messages": [{"role": "assistant", "content": [image("https://there.is/one.png")]}]},
        "messages[0].content[0]",
        "unsupported_value",
    ),
    "an image that is a file": (
        {"messages": [{"role": "user", "content": [image("file:///etc/passwd")]}]},
        "messages[0].content[0].image_url.url",
        "invalid_value",
    ),
    "a sound": (
        {"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]},
        "messages[0].content[0]",
        "unsupported_value",
    ),
    "answer to no call": ({"messages": NO_CALL}, "messages[0].tool_call_id", "invalid_value"),
    "unknown field": ({"frobnicate": 1}, "frobnicate", "unknown_parameter"),
    "temperature too high": ({"temperature": 2.5}, "temperature", "invalid_value"),
    "temperature as text": ({"temperature": "1"}, "temperature", "invalid_value"),
    "n as boolean": ({"n": True}, "n", "invalid_value"),
    "n is zero": ({"n": 0}, "n", "invalid_value"),
    "stop with a number": ({"stop": ["x", 1]}, "stop[1]", "invalid_value"),
    "seed too large": ({"seed": 2**63}, "seed", "invalid_value"),
    "required without tools": ({"tool_choice": "required"}, "tool_choice", "invalid_value"),
    "unknown choice": ({"tool_choice": "sometimes"}, "tool_choice", "invalid_value"),
    "choice of another tool": (
        {"tools": [NOW], "tool_choice": {"type": "function", "function": {"name": "then"}}},
        "tool_choice",
        "invalid_value",
    ),
    "two tools of one name": ({"tools": [NOW, NOW]}, "tools", "invalid_value"),
    "tool without function": (
        {"tools": [{"type": "function"}]}, "tools[0].function", "missing_required_parameter"
    ),
    "format without schema": (
        {"response_format": {"type": "json_schema"}},
        "response_format.json_schema",
        "missing_required_parameter",
    ),
    "top_logprobs alone": ({"top_logprobs": 2}, "top_logprobs", "invalid_value"),
    "reserved tag": ({"metadata": {"session": "x"}}, "metadata", None),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG_FIELDS)
async def test_an_error_reports_the_path_of_a_wrong_field(
    http: httpx.AsyncClient, case: str
) -> None:
    fields, param, code = WRONG_FIELDS[case]
    response = await http.post("chat/completions", json=asked("Hello?") | fields)
    assert response.status_code == 400
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert (error["type"], error["param"], error["code"]) == ("invalid_request_error", param, code)


@pytest.mark.parametrize(
    ("field", "value"),
    [("temperature", "0.5"), ("max_output_tokens", "5"), ("store", "no"), ("stream", 1)],
)
async def test_a_response_takes_no_text_for_a_number_or_boolean(
    http: httpx.AsyncClient, field: str, value: Any
) -> None:
    body = {"model": "llm", "input": "Hello?", field: value}
    response = await http.post("responses", json=body)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == field


@pytest.mark.parametrize("body", [b'{"model', b"[]", b"", b"\xff\xfe"])
async def test_a_body_that_is_not_a_json_object_is_refused(
    http: httpx.AsyncClient, body: bytes
) -> None:
    response = await http.post("chat/completions", content=body)
    assert response.status_code == 400
    assert response.json()["error"]["code"] == "invalid_json"


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_body_that_is_too_large_is_refused(
    http: httpx.AsyncClient, *, chunked: bool
) -> None:
    async def pieces() -> Any:
        for _ in range(20):
            yield b"x" * 100_000

    body: Any = pieces() if chunked else b"x" * 2_000_000
    response = await http.post("chat/completions", content=body)
    assert response.status_code == 413
    assert response.json()["error"]["code"] == "request_too_large"


async def test_the_error_about_an_unknown_model_suggests_a_similar_one(
    http: httpx.AsyncClient,
) -> None:
    response = await http.post("chat/completions", json=asked("Hello?", model="lln"))
    assert response.status_code == 404
    error = response.json()["error"]
    assert (error["type"], error["code"]) == ("invalid_request_error", "model_not_found")
    assert "'lln'" in error["message"]
    assert "Did you mean 'llm'?" in error["message"]


@pytest.mark.parametrize("key", ["", "Bearer", "Bearer sk-wrong", "Basic eDp5"])
@pytest.mark.parametrize("path", ["models", "chat/completions/chatcmpl-x"])
async def test_a_request_without_a_known_key_is_refused(
    gateway: ScriptedGateway, key: str, path: str
) -> None:
    async with gateway.http(authorization=key) as stranger:
        response = await stranger.get(path)
    assert response.status_code == 401
    assert response.json()["error"]["type"] == "authentication_error"


async def test_a_request_that_the_engine_refuses_is_a_bad_request(http: httpx.AsyncClient) -> None:
    response = await http.post("chat/completions", json=asked("Hello?", frequency_penalty=1.0))
    assert response.status_code == 400
    assert "the scripted engine does not support" in response.json()["error"]["message"]


async def test_a_refused_stream_has_the_status_of_its_error(http: httpx.AsyncClient) -> None:
    body = asked("Hello?", frequency_penalty=1.0, stream=True)
    response = await http.post("chat/completions", json=body)
    assert response.status_code == 400
    assert response.headers["content-type"] == "application/json"


async def test_a_team_takes_no_tools_from_its_caller(http: httpx.AsyncClient) -> None:
    body = asked("Hello?", model="workflow/solo", tools=[NOW])
    response = await http.post("chat/completions", json=body)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "tools"


@pytest.mark.parametrize("path", ["nowhere", "models/nobody", "chat/completions/chatcmpl-x"])
async def test_an_unknown_path_or_id_is_a_404_with_a_request_id(
    http: httpx.AsyncClient, path: str
) -> None:
    response = await http.get(path)
    assert response.status_code == 404
    assert response.json()["error"]["message"]
    assert response.headers["x-request-id"]


async def test_embeddings_of_a_text_model_are_refused_with_their_own_code(
    http: httpx.AsyncClient,
) -> None:
    response = await http.post("embeddings", json={"model": "llm", "input": "x"})
    assert response.status_code == 404
    assert response.json()["error"]["code"] == "embeddings_not_supported"
