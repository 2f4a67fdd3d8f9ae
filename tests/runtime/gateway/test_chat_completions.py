"""The parts of a request that reach the model, and the parts of its answer that come back."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from openai.types import Model
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from tests.runtime.gateway.conftest import JsonBody, answered, asked, content, streamed, text_of

UNICODE = "Zażółć 25 °C ~ 漢字 👩🏽‍🚀\n\n  naïve – „Anführung“\ttab"
WEATHER: JsonBody = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}
NOW: JsonBody = {"type": "function", "function": {"name": "now"}}


def called(completion: JsonBody) -> list[tuple[str, Any]]:
    """Name and arguments of each call of a completion's first choice."""
    calls = completion["choices"][0]["message"]["tool_calls"]
    return [(c["function"]["name"], json.loads(c["function"]["arguments"])) for c in calls]


async def test_a_completion_has_exactly_the_fields_of_openais_type(http: httpx.AsyncClient) -> None:
    body = asked("Weather in Oslo?", tools=[WEATHER], logprobs=True)
    completion = ChatCompletion.model_validate(await answered(http, body), strict=True)
    assert not completion.model_extra
    choice = completion.choices[0]
    for part in (choice, choice.message, choice.logprobs, completion.usage):
        assert part is not None
        assert not part.model_extra
    assert completion.id.startswith("chatcmpl-")


async def test_every_chunk_has_exactly_the_fields_of_openais_type(http: httpx.AsyncClient) -> None:
    body = asked(
        "Weather in Oslo?", tools=[WEATHER], logprobs=True, stream_options={"include_usage": True}
    )
    *events, end = await streamed(http, body)
    assert end.data == "[DONE]"
    for event in events:
        chunk = ChatCompletionChunk.model_validate(event.chunk, strict=True)
        assert not chunk.model_extra
        for choice in chunk.choices:
            assert not choice.model_extra
            assert not choice.delta.model_extra


@pytest.mark.parametrize("role", ["system", "developer"])
async def test_instructions_reach_the_model(http: httpx.AsyncClient, role: str) -> None:
    body = asked("Hello?")
    body["messages"].insert(0, {"role": role, "content": "You are a parrot."})
    assert content(await answered(http, body)) == "Squawk!"


async def test_history_and_parts_of_text_reach_the_model(http: httpx.AsyncClient) -> None:
    body = asked("What is my name?")
    name = [{"type": "text", "text": "My name is Ada."}]
    body["messages"][:0] = [
        {"role": "user", "content": name},
        {"role": "assistant", "content": "Hello!", "refusal": None, "annotations": []},
    ]
    assert content(await answered(http, body)) == "Your name is Ada."


async def test_the_text_of_the_model_arrives_unchanged(http: httpx.AsyncClient) -> None:
    body = asked("Say it in every script.")
    assert content(await answered(http, body)) == UNICODE
    assert text_of(await streamed(http, body)) == UNICODE


async def test_the_result_of_a_tool_reaches_the_model(http: httpx.AsyncClient) -> None:
    body = asked("Weather in Oslo?", tools=[WEATHER])
    first = await answered(http, body)
    assert first["choices"][0]["finish_reason"] == "tool_calls"
    assert first["choices"][0]["message"]["content"] is None
    assert called(first) == [("weather", {"city": "Oslo"})]
    message = first["choices"][0]["message"]
    call_id = message["tool_calls"][0]["id"]
    result = {"role": "tool", "tool_call_id": call_id, "content": "Oslo has rain."}
    body["messages"] += [message, result]
    assert content(await answered(http, body)) == "It rains in Oslo."


async def test_several_calls_of_one_turn_are_streamed_by_index(http: httpx.AsyncClient) -> None:
    body = asked("Weather in Oslo? I mean Oslo and Rome", tools=[WEATHER])
    *events, _ = await streamed(http, body)
    deltas = [choice["delta"] for event in events for choice in event.chunk["choices"]]
    calls = [call for delta in deltas for call in delta.get("tool_calls", [])]
    assert [call["index"] for call in calls] == [0, 1]
    assert len({call["id"] for call in calls}) == 2
    assert [json.loads(call["function"]["arguments"])["city"] for call in calls] == ["Oslo", "Rome"]
    assert events[-1].chunk["choices"][0]["finish_reason"] == "tool_calls"


async def test_without_parallel_tool_calls_the_model_makes_only_one_call(
    http: httpx.AsyncClient,
) -> None:
    question = "Weather in Oslo? I mean Oslo and Rome"
    body = asked(question, tools=[WEATHER], parallel_tool_calls=False)
    assert called(await answered(http, body)) == [("weather", {"city": "Oslo"})]


async def test_tool_choice_none_prevents_calls(http: httpx.AsyncClient) -> None:
    body = asked("What is 2 + 3?", tools=[WEATHER], tool_choice="none")
    choice = (await answered(http, body))["choices"][0]
    assert "tool_calls" not in choice["message"]
    assert choice["finish_reason"] == "stop"


@pytest.mark.parametrize(
    "choice",
    [
        {"type": "function", "function": {"name": "now"}},
        {
            "type": "allowed_tools",
            "allowed_tools": {
                "mode": "required",
                "tools": [{"type": "function", "function": {"name": "now"}}],
            },
        },
    ],
)
async def test_a_tool_choice_with_a_name_makes_the_model_call_that_tool(
    http: httpx.AsyncClient, choice: JsonBody
) -> None:
    body = asked("What is 2 + 3?", tools=[WEATHER, NOW], tool_choice=choice)
    assert [name for name, _ in called(await answered(http, body))] == ["now"]


async def test_tool_choice_required_makes_the_model_call(http: httpx.AsyncClient) -> None:
    body = asked("What is 2 + 3?", tools=[WEATHER], tool_choice="required")
    assert [name for name, _ in called(await answered(http, body))] == ["weather"]


@pytest.mark.parametrize("kind", ["json_schema", "json_object"])
async def test_the_text_follows_the_response_format(http: httpx.AsyncClient, kind: str) -> None:
    schema = {"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]}
    form: JsonBody = {"type": kind}
    if kind == "json_schema":
        form["json_schema"] = {"name": "total", "strict": True, "schema": schema}
    text = content(await answered(http, asked("What is 2 + 3?", response_format=form)))
    assert json.loads(text) == ({"sum": 5} if kind == "json_schema" else {})


async def test_every_choice_has_its_own_text_even_in_a_stream(http: httpx.AsyncClient) -> None:
    body = asked("Name a fruit.", n=2)
    choices = (await answered(http, body))["choices"]
    assert [(c["index"], c["message"]["content"]) for c in choices] == [(0, "apple"), (1, "pear")]
    texts = {0: "", 1: ""}
    for event in (await streamed(http, body))[:-1]:
        for choice in event.chunk["choices"]:
            texts[choice["index"]] += choice["delta"].get("content") or ""
    assert texts == {0: "apple", 1: "pear"}


async def test_a_seed_repeats_the_answer_and_without_one_answers_differ(
    http: httpx.AsyncClient,
) -> None:
    same = {content(await answered(http, asked("How old?", seed=5))) for _ in range(3)}
    assert len(same) == 1
    free = {content(await answered(http, asked("How old?"))) for _ in range(8)}
    assert len(free) > 1


@pytest.mark.parametrize("stop", [" four", [" four", " two five"]])
async def test_a_stop_string_ends_the_text_before_it(
    http: httpx.AsyncClient, stop: str | list[str]
) -> None:
    completion = await answered(http, asked("Count to nine.", stop=stop))
    assert content(completion) == "one two three"
    assert completion["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
async def test_a_truncated_text_has_the_finish_reason_length(
    http: httpx.AsyncClient, field: str
) -> None:
    completion = await answered(http, asked("Count to nine.") | {field: 3})
    assert completion["choices"][0]["finish_reason"] == "length"
    assert completion["usage"]["completion_tokens"] == 3
    assert content(completion) == "one two t"


async def test_logprobs_and_token_ids_match_the_tokens_of_the_text(http: httpx.AsyncClient) -> None:
    body = asked("Count to nine.", logprobs=True, return_token_ids=True)
    completion = await answered(http, body)
    choice = completion["choices"][0]
    tokens = choice["logprobs"]["content"]
    assert "".join(token["token"] for token in tokens) == content(completion)
    assert b"".join(bytes(token["bytes"]) for token in tokens).decode() == content(completion)
    assert all(token["logprob"] <= 0 for token in tokens)
    assert len(choice["token_ids"]) == len(tokens) == completion["usage"]["completion_tokens"]
    assert len(completion["prompt_token_ids"]) == completion["usage"]["prompt_tokens"]


async def test_the_last_chunk_has_the_usage_if_the_request_includes_it(
    http: httpx.AsyncClient,
) -> None:
    body = asked("Count to nine.")
    whole = (await answered(http, body))["usage"]
    *events, _ = await streamed(http, {**body, "stream_options": {"include_usage": True}})
    *before, last = (event.chunk for event in events)
    assert last["choices"] == []
    assert last["usage"] == whole
    assert all(chunk["usage"] is None for chunk in before)
    *events, _ = await streamed(http, body)
    assert all("usage" not in event.chunk for event in events)


async def test_a_team_answers_under_the_name_of_a_model(http: httpx.AsyncClient) -> None:
    body = asked("What is 12 * 7 + 5?", model="workflow/solo")
    completion = await answered(http, body)
    assert content(completion) == "89"
    assert completion["model"] == "workflow/solo"
    assert completion["usage"]["completion_tokens"] > 0
    assert text_of(await streamed(http, body)) == "89"


async def test_models_are_listed_and_can_be_retrieved(http: httpx.AsyncClient) -> None:
    listed = (await http.get("models")).json()
    names = [Model.model_validate(model, strict=True).id for model in listed["data"]]
    assert {"llm", "slow", "workflow/solo"} <= set(names)
    assert (await http.get("models/workflow/solo")).json()["id"] == "workflow/solo"


async def test_a_policy_is_a_model_before_its_first_version_is_published(
    http: httpx.AsyncClient,
) -> None:
    """Version 0, the pool's own model, answers."""
    listed = (await http.get("models")).json()
    assert "llm/later" in [model["id"] for model in listed["data"]]
    for name in ("llm/later", "llm/later@0"):
        completion = await answered(http, asked("What is 12 * 7 + 5?", model=name))
        assert content(completion)
    response = await http.post("chat/completions", json=asked("Hello?", model="llm/later@1"))
    assert response.status_code == 404


async def test_the_id_of_a_completion_contains_its_request_id(http: httpx.AsyncClient) -> None:
    response = await http.post("chat/completions", json=asked("Hello?"))
    assert response.json()["id"] == f"chatcmpl-{response.headers['x-request-id']}"
