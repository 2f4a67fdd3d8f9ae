"""The parts of a client's request that reach an endpoint unchanged."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.runtime.gateway.scripted_gateway import ScriptedGateway
from tests.runtime.gateway.test_images import Endpoint, in_front_of

SCHEMA: dict[str, Any] = {
    "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"],
    "additionalProperties": False,
}  # fmt: skip
NAMED: dict[str, Any] = {"name": "weather", "description": "Weather.", "parameters": SCHEMA}
VALUES = (True, False, None)
TOP = [
    {"token": "Hi", "logprob": -0.25, "bytes": [72, 105]},
    {"token": "Yo", "logprob": -1.5, "bytes": [89, 111]},
]
LOGPROBS = [{**TOP[0], "top_logprobs": TOP}]
ANSWER: dict[str, Any] = {
    "id": "c", "object": "chat.completion", "created": 1, "model": "big",
    "choices": [{
        "index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Hi"},
        "logprobs": {"content": LOGPROBS},
    }],
    "usage": {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4},
}  # fmt: skip


@pytest.fixture(scope="module")
def recording() -> Iterator[tuple[ScriptedGateway, Endpoint]]:
    with in_front_of(ANSWER) as gateway_and_endpoint:
        yield gateway_and_endpoint


def declared(strict: bool | None) -> dict[str, Any]:
    return NAMED if strict is None else {**NAMED, "strict": strict}


@pytest.mark.parametrize("strict", VALUES)
async def test_a_chat_s_tool_reaches_the_endpoint_as_declared(
    recording: tuple[ScriptedGateway, Endpoint], *, strict: bool | None
) -> None:
    gateway, endpoint = recording
    tool = {"type": "function", "function": declared(strict)}
    messages = [{"role": "user", "content": "Weather?"}]
    async with gateway.http() as http:
        body = {"model": "big", "messages": messages, "tools": [tool]}
        answer = await http.post("chat/completions", json=body)
    assert answer.status_code == 200, answer.text
    assert endpoint.bodies[-1]["tools"] == [tool]


@pytest.mark.parametrize("strict", VALUES)
async def test_a_response_s_tool_reaches_the_endpoint_as_declared_and_is_repeated(
    recording: tuple[ScriptedGateway, Endpoint], *, strict: bool | None
) -> None:
    gateway, endpoint = recording
    tool = {"type": "function", **declared(strict)}
    async with gateway.http() as http:
        body = {"model": "big", "input": "Weather?", "tools": [tool]}
        answer = await http.post("responses", json=body)
    assert answer.status_code == 200, answer.text
    assert endpoint.bodies[-1]["tools"] == [{"type": "function", "function": declared(strict)}]
    assert answer.json()["tools"] == [{"type": "function", **NAMED, "strict": strict}]


async def test_effort_verbosity_switches_and_json_mode_reach_the_endpoint(
    recording: tuple[ScriptedGateway, Endpoint],
) -> None:
    gateway, endpoint = recording
    fields: dict[str, Any] = {
        "reasoning_effort": "low",
        "chat_template_kwargs": {"enable_thinking": False},
        "verbosity": "low",
        "response_format": {"type": "json_object"},
    }
    async with gateway.http() as http:
        body = {"model": "big", "messages": [{"role": "user", "content": "JSON?"}], **fields}
        answer = await http.post("chat/completions", json=body)
    assert answer.status_code == 200, answer.text
    sent = endpoint.bodies[-1]
    assert {name: sent[name] for name in fields} == fields
    run = answer.headers["x-request-id"]
    async with gateway.http() as http:
        (step,) = (await http.get(f"runs/{run}")).json()["steps"]
    assert step["candidates"][0]["calls"][0]["sampling"]["reasoning_effort"] == "low"


async def test_a_response_s_effort_and_verbosity_reach_the_endpoint(
    recording: tuple[ScriptedGateway, Endpoint],
) -> None:
    gateway, endpoint = recording
    async with gateway.http() as http:
        options = {"reasoning": {"effort": "high"}, "text": {"verbosity": "high"}}
        answer = await http.post("responses", json={"model": "big", "input": "Why?", **options})
    response, sent = answer.json(), endpoint.bodies[-1]
    assert (response["reasoning"]["effort"], response["text"]["verbosity"]) == ("high", "high")
    assert (sent["reasoning_effort"], sent["verbosity"]) == ("high", "high")


async def test_a_client_gets_the_endpoint_s_logprobs_and_most_likely_tokens(
    recording: tuple[ScriptedGateway, Endpoint],
) -> None:
    gateway, endpoint = recording
    async with gateway.http() as http:
        chat = {"model": "big", "messages": [{"role": "user", "content": "Hi"}]}
        body = {**chat, "logprobs": True, "top_logprobs": 2}
        answer = await http.post("chat/completions", json=body)
        include = ["message.output_text.logprobs"]
        body = {"model": "big", "input": "Hi", "include": include, "top_logprobs": 2}
        response = (await http.post("responses", json=body)).json()
    assert [sent["top_logprobs"] for sent in endpoint.bodies[-2:]] == [2, 2]
    assert answer.json()["choices"][0]["logprobs"]["content"] == LOGPROBS
    assert response["output"][0]["content"][0]["logprobs"] == LOGPROBS
    assert response["top_logprobs"] == 2
