"""Behaviour that follows only from a profile or an error, without an endpoint."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, TypeAdapter

from loopline.agents.records import (
    ANY_JSON_OBJECT,
    GenerationOptions,
    Message,
    SamplingParams,
    ToolChoice,
)
from loopline.workers.engines.openai.address import Address
from loopline.workers.engines.openai.complaints import complaint_of
from loopline.workers.engines.openai.errors import refusal_of
from loopline.workers.engines.openai.wire import keeps_logprobs, request_body
from loopline.workers.engines.settings import ModelSettings
from tests.workers.engines.asking import CALCULATE, request

OPENAI = ModelSettings(engine="openai", model="m")


def test_openai_itself_is_asked_whatever_the_environment_sets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    assert Address.of(None).url() == "https://api.openai.com/v1/chat/completions"


def test_the_default_limit_field_fits_the_endpoint() -> None:
    generate_request = request(sampling={"max_tokens": 7})
    local_settings = ModelSettings(engine="openai", model="m", base_url="http://localhost:8000/v1")
    assert request_body(generate_request, local_settings)["max_tokens"] == 7
    assert (
        request_body(generate_request, ModelSettings(engine="openai", model="m"))[
            "max_completion_tokens"
        ]
        == 7
    )
    assert SamplingParams().max_tokens == local_settings.sampling().max_tokens


def test_a_content_filter_s_refusal_concerns_the_problem_and_not_the_deployment() -> None:
    complaint = complaint_of({"error": {"code": "content_filter", "message": "no"}})
    assert refusal_of(complaint, 400, "endpoint", (), False).kind == "content_filter"


@pytest.mark.parametrize(
    ("choice", "sent"),
    [
        (ToolChoice(), None),
        (ToolChoice(mode="none"), "none"),
        (ToolChoice(mode="required"), "required"),
        (
            ToolChoice(mode="required", name="calculate"),
            {"type": "function", "function": {"name": "calculate"}},
        ),
    ],
)
def test_a_tool_choice_other_than_the_default_is_passed_on(
    choice: ToolChoice, sent: object
) -> None:
    body = request_body(request(tools=[CALCULATE], tool_choice=choice), OPENAI)
    assert body.get("tool_choice") == sent
    assert "parallel_tool_calls" not in body
    assert [tool["function"]["name"] for tool in body["tools"]] == ["calculate"]


@pytest.mark.parametrize("strict", [True, False, None])
def test_a_tool_is_sent_as_strict_only_if_its_caller_says_so(*, strict: bool | None) -> None:
    tool = CALCULATE.model_copy(update={"strict": strict})
    [sent] = request_body(request(tools=[tool]), OPENAI)["tools"]
    assert sent["function"].get("strict", None) == strict
    assert ("strict" in sent["function"]) == (strict is not None)


def test_a_single_call_is_requested_only_with_tools() -> None:
    body = request_body(request(tools=[CALCULATE], parallel_tool_calls=False), OPENAI)
    assert body["parallel_tool_calls"] is False
    assert "parallel_tool_calls" not in request_body(request(parallel_tool_calls=False), OPENAI)


def test_how_much_to_think_is_sent_only_if_it_is_set() -> None:
    assert "reasoning_effort" not in request_body(request(), OPENAI)
    body = request_body(request(sampling={"reasoning_effort": "low"}), OPENAI)
    assert body["reasoning_effort"] == "low"


def test_the_pool_s_effort_applies_unless_the_caller_sets_another() -> None:
    pool = ModelSettings(engine="openai", model="m", reasoning_effort="high")
    assert pool.sampling().reasoning_effort == "high"
    options = GenerationOptions(reasoning_effort="none")
    assert options.sampling(pool.sampling()).reasoning_effort == "none"


def test_any_json_object_is_requested_in_json_mode() -> None:
    body = request_body(request(json_schema=ANY_JSON_OBJECT), OPENAI)
    assert body["response_format"] == {"type": "json_object"}


class Closed(BaseModel):
    model_config = ConfigDict(extra="forbid")

    x: int


class Open(BaseModel):
    x: int


class HasOptional(Closed):
    y: Closed | None = None


class HasOpen(Closed):
    y: list[Open]


class HasClosed(Closed):
    properties: list[Closed] | None


@pytest.mark.parametrize(
    ("schema", "strict"),
    [
        (Closed.model_json_schema(), True),
        (HasClosed.model_json_schema(), True),
        (Open.model_json_schema(), False),
        (HasOptional.model_json_schema(), False),
        (HasOpen.model_json_schema(), False),
        (TypeAdapter(Closed | int).json_schema(), False),
        ({"type": "object", "properties": {}}, False),
        ({"type": "object", "additionalProperties": False, "properties": 5}, False),
        ({}, False),
    ],
)
def test_a_schema_is_strict_only_if_openai_accepts_it_so(
    schema: dict[str, Any], *, strict: bool
) -> None:
    sent = request_body(request(json_schema=schema), OPENAI)["response_format"]["json_schema"]
    assert (sent["schema"], sent["strict"]) == (schema, strict)


def test_a_message_s_name_is_passed_on() -> None:
    messages = [
        Message(role="user", content="Hi", name="ada"),
        Message(role="user", content="Hi"),
    ]
    sent = request_body(request(messages), OPENAI)["messages"]
    assert [message.get("name") for message in sent] == ["ada", None]


def test_nonzero_penalties_are_passed_on() -> None:
    penalties = {"frequency_penalty": -0.5, "presence_penalty": 1.5}
    body = request_body(request(sampling=penalties), OPENAI)
    assert body.items() >= penalties.items()
    zero: dict[str, Any] = dict.fromkeys(penalties, 0.0)
    assert not request_body(request(sampling=zero), OPENAI).keys() & penalties.keys()


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_raw_logprobs_are_not_accepted_for_penalized_sampling(temperature: float) -> None:
    raw = ModelSettings(engine="openai", model="m", logprobs="raw")
    sampling = SamplingParams(temperature=temperature)
    assert keeps_logprobs(raw, sampling)
    assert not keeps_logprobs(raw, sampling.model_copy(update={"presence_penalty": 0.1}))
