"""Requests of the openai engine, what it learns from refusals, and calls that are not paid for
twice."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from decimal import Decimal
from typing import Any

import pytest

from loopline.agents.records import ANY_JSON_OBJECT
from loopline.workers.engines.openai.engine import OpenAIEngine
from loopline.workers.engines.settings import ModelSettings, Price
from tests.workers.engines.asking import ask, completions, failure, request
from tests.workers.engines.test_endpoint_shapes import Server, serving
from tests.workers.engines.test_real_servers import history

GOOD: dict[str, Any] = {
    "choices": [{"index": 0, "message": {"content": "Six = 6."}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 20, "completion_tokens": 6, "total_tokens": 26},
}
USELESS: dict[str, Any] = {**GOOD, "choices": [{"message": {"content": 5}}]}


@asynccontextmanager
async def asking(
    case: dict[str, Any], base: str = "http://HOST/v1", **settings: Any
) -> AsyncGenerator[tuple[OpenAIEngine, Server]]:
    async with serving(case) as server:
        model_settings = ModelSettings(
            engine="openai", model="m", base_url=base.replace("HOST", server.host),
            backoff_seconds=0.001, **settings,
        )  # fmt: skip
        engine = OpenAIEngine(model_settings)
        await engine.start()
        try:
            yield engine, server
        finally:
            await engine.close()


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_to_another_host_is_refused_and_does_not_leak_the_key(
    status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_KEY", "sk-very-secret-0123456789")
    async with serving({"body": GOOD}) as elsewhere:
        there = f"http://{elsewhere.host}/v1/chat/completions"
        case = {"status": status, "headers": {"location": there}, "body_raw": ""}
        async with asking(case, api_key_env="SOME_KEY") as (engine, server):
            error = await failure(engine, request())
        assert (error.kind, error.retryable) == ("bad_request", False)
        assert elsewhere.host in str(error)
        assert "set base_url" in str(error)
        assert (len(server.arrived), elsewhere.arrived) == (1, [])


async def test_a_redirect_to_nowhere_is_refused_at_once() -> None:
    async with asking({"status": 307, "body_raw": ""}) as (engine, server):
        error = await failure(engine, request())
    assert "answered 307, which leads to nowhere" in str(error)
    assert len(server.arrived) == 1


async def test_a_custom_server_receives_nothing_from_openai_s_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("API_KEY", "ORG_ID", "PROJECT_ID", "CUSTOM_HEADERS", "WEBHOOK_SECRET"):
        monkeypatch.setenv(f"OPENAI_{name}", "x-secret: stays-here")
    async with asking({"body": GOOD}) as (engine, server):
        await ask(engine)
    assert "stays-here" not in str(server.arrived[0].headers)
    assert "authorization" not in server.arrived[0].headers


async def test_a_base_url_s_query_is_sent_with_each_request() -> None:
    base = "http://HOST/openai/deployments/d?api-version=2026-02-01"
    async with asking({"body": GOOD}, base) as (engine, server):
        await ask(engine)
    [arrived] = server.arrived
    assert arrived.path == "/openai/deployments/d/chat/completions?api-version=2026-02-01"


async def test_fields_that_a_profile_omits_are_not_sent() -> None:
    names = ("temperature", "seed", "max_tokens", "stop")
    async with asking({"body": GOOD}, leave_out=names) as (engine, server):
        completion = await ask(engine, sampling={"seed": 3, "stop": ("=",)})
    assert not server.arrived[0].body.keys() & set(names)
    assert completion.text == "Six "


async def test_a_refused_field_is_omitted_from_then_on_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    refusal = {"error": {"message": "'temperature' is not supported", "param": "temperature"}}
    case = {"status": 400, "body": refusal, "refuses": "temperature", "then": GOOD}
    with caplog.at_level(logging.WARNING):
        async with asking(case) as (engine, server):
            for _ in range(3):
                assert (await ask(engine)).text == "Six = 6."
    assert ["temperature" in arrival.body for arrival in server.arrived] == [True, *[False] * 3]
    assert caplog.text.count("leave_out = ['temperature']") == 1


# n8n-io/n8n#14581, open-webui/open-webui#21266; optillm#8; stanfordnlp/dspy#1155.
REFUSED: list[tuple[str, object, Any]] = [
    ("presence_penalty", 0.5, "Argument not supported on this model: presencePenalty"),
    ("presence_penalty", 0.5, "Model grok-4.5 does not support parameter presencePenalty."),
    ("frequency_penalty", 0.5, 'Unknown name "frequency_penalty": Cannot find field.'),
    ("stop", ("X",), "Argument not supported on this model: stop"),
    ("n", 2, "Only one completion choice is allowed"),
    ("n", 2, "'n' : number must be at most 1"),
    ("n", 2, "invalid request: unknown field: n"),
    ("n", 2, "invalid n: only 1 is allowed for this model"),
]


@pytest.mark.parametrize(("name", "value", "message"), REFUSED)
async def test_every_sampling_field_is_omitted_in_the_words_of_its_refusal(
    name: str, value: object, message: str
) -> None:
    case = {"status": 400, "body": {"error": message}, "refuses": name, "then": GOOD}
    async with asking(case) as (engine, server):
        results = await completions(engine, request(sampling={name: value}))
    assert {completion.text for completion in results} == {"Six = 6."}
    assert [name in arrival.body for arrival in server.arrived[:2]] == [True, False]


async def test_a_penalty_is_omitted_by_profile() -> None:
    async with asking({"body": GOOD}, leave_out=("presence_penalty",)) as (engine, server):
        await ask(engine, sampling={"presence_penalty": 0.5})
    assert "presence_penalty" not in server.arrived[0].body


async def test_a_model_s_name_is_not_the_name_of_a_field() -> None:
    refusal = {"error": "library/seed-oss:36b does not support tools"}
    async with asking({"status": 400, "body": refusal}) as (engine, server):
        await failure(engine, request(sampling={"seed": 3}))
    assert len(server.arrived) == 1


async def test_top_logprobs_are_requested_and_used_as_the_endpoint_returns_them() -> None:
    pairs = [{"token": "Six", "logprob": -0.5}, {"token": "?", "logprob": -2.5, "bytes": [240]}]
    content = [{"token": "Six", "logprob": -0.5, "top_logprobs": pairs}]
    choice = {**GOOD["choices"][0], "logprobs": {"content": content}}
    async with asking({"body": {**GOOD, "choices": [choice]}}) as (engine, server):
        completion = await ask(engine, top_logprobs=2)
    assert server.arrived[0].body.items() >= {"logprobs": True, "top_logprobs": 2}.items()
    assert completion.top_logprobs == ((("Six", -0.5), ("�", -2.5)),)
    assert completion.tokens == completion.logprobs == ()


@pytest.mark.parametrize(("logprob", "reported"), [(-0.5, (-0.5,)), (None, ()), ("x", ())])
async def test_logprobs_of_an_unknown_distribution_are_only_reported(
    logprob: object, reported: tuple[float, ...]
) -> None:
    content = [{"token": "Six", "logprob": logprob}]
    choice = {**GOOD["choices"][0], "logprobs": {"content": content}}
    async with asking({"body": {**GOOD, "choices": [choice]}}) as (engine, _):
        completion = await ask(engine, token_texts=True)
    assert (completion.tokens, completion.reported_logprobs) == (("Six",), reported)
    assert completion.logprobs == completion.raw_logprobs == ()


async def test_token_texts_are_empty_when_an_endpoint_returns_no_logprobs() -> None:
    async with asking({"body": GOOD}) as (engine, server):
        completion = await ask(engine, token_texts=True)
    assert server.arrived[0].body["logprobs"] is True
    assert (completion.text, completion.tokens, completion.logprobs) == ("Six = 6.", (), ())


async def test_a_request_for_token_texts_is_repeated_without_refused_logprobs() -> None:
    refusal = {"error": {"message": "logprobs is not supported with this model"}}
    case = {"status": 400, "body": refusal, "refuses": "logprobs", "then": GOOD}
    async with asking(case) as (engine, server):
        for _ in range(2):
            assert (await ask(engine, token_texts=True)).tokens == ()
    names = [arrival.body.keys() & {"logprobs", "top_logprobs"} for arrival in server.arrived]
    assert [len(sent) for sent in names] == [2, 0, 0]


async def test_logprobs_that_the_settings_promise_are_not_omitted() -> None:
    refusal = {"error": {"message": "logprobs is not supported with this model"}}
    async with asking({"status": 400, "body": refusal}, logprobs="raw") as (engine, server):
        error = await failure(engine, request(token_texts=True))
    assert "logprobs" in str(error)
    assert len(server.arrived) == 1


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_token_whose_bytes_are_not_utf_8_is_a_replacement_character(
    streamed: bool,
) -> None:
    """OpenAI writes them like this; a server that sends no bytes is taken at its word."""
    content: list[dict[str, Any]] = [
        {"token": "Six", "logprob": -0.5, "bytes": [83, 105, 120], "top_logprobs": []},
        {"token": "\\xf0\\x9f", "logprob": -0.5, "bytes": [240, 159], "top_logprobs": []},
        {"token": "\\x98\\x80", "logprob": -0.5, "bytes": [152, 128], "top_logprobs": []},
        {"token": "!", "logprob": -0.5},
    ]
    choice = {**GOOD["choices"][0], "logprobs": {"content": content}}
    if streamed:
        choice["delta"] = choice.pop("message")
        chunk = {"choices": [choice], "usage": GOOD["usage"]}
        case: dict[str, Any] = {"sse": [chunk]}
    else:
        case = {"body": {**GOOD, "choices": [choice]}}
    async with asking(case) as (engine, _):
        completion = await ask(engine, token_texts=True, stream=streamed)
        assert completion.tokens == ("Six", "�", "�", "!")
        assert completion.logprobs == ()
        assert (await ask(engine)).tokens == ()


async def test_a_value_out_of_range_is_an_error_and_does_not_drop_the_field() -> None:
    refusal = {"error": {"message": "temperature must be at most 2", "param": "temperature"}}
    async with asking({"status": 400, "body": refusal}) as (engine, server):
        assert (await failure(engine, request(sampling={"temperature": 3}))).kind == "bad_request"
    assert len(server.arrived) == 1


LM_STUDIO = {"error": "'response_format.type' must be 'json_schema' or 'text'"}
OPENAI_S_DEMAND = {
    "error": {
        "message": "'messages' must contain the word 'json' in some form, to use"
        " 'response_format' of type 'json_object'.",
        "type": "invalid_request_error",
        "param": "messages",
    }
}


async def test_a_json_object_is_requested_by_a_schema_where_json_mode_is_refused() -> None:
    case = {"answers": [{"status": 400, "body": LM_STUDIO}, {"body": GOOD}, {"body": GOOD}]}
    async with asking(case) as (engine, server):
        for _ in range(2):
            await ask(engine, json_schema=ANY_JSON_OBJECT)
    kinds = [sent.body["response_format"]["type"] for sent in server.arrived]
    assert kinds == ["json_object", "json_schema", "json_schema"]


async def test_an_endpoint_without_schemas_still_answers_with_json_objects() -> None:
    async with asking({"body": GOOD}, json_schema=False) as (engine, server):
        await ask(engine, json_schema=ANY_JSON_OBJECT)
        error = await failure(engine, request(json_schema={"type": "array"}))
    assert (error.kind, len(server.arrived)) == ("bad_request", 1)


async def test_openai_s_demand_for_the_word_json_reaches_the_caller() -> None:
    async with asking({"status": 400, "body": OPENAI_S_DEMAND}) as (engine, server):
        error = await failure(engine, request(json_schema=ANY_JSON_OBJECT))
    assert "must contain the word 'json'" in str(error)
    assert len(server.arrived) == 1


async def test_null_is_sent_where_empty_content_is_refused() -> None:
    refusal = {"error": {"message": "messages.1.content: text must be non-empty"}}
    case = {"answers": [{"status": 400, "body": refusal}, {"body": GOOD}]}
    async with asking(case) as (engine, server):
        await ask(engine, history())
    assert [arrival.body["messages"][1]["content"] for arrival in server.arrived] == ["", None]


async def test_completions_requested_one_by_one_have_separate_seeds() -> None:
    async with asking({"body": GOOD}) as (engine, server):
        for _ in range(2):
            assert len(await completions(engine, request(sampling={"n": 3, "seed": 7}))) == 3
    requests = [(arrival.body.get("n"), arrival.body["seed"]) for arrival in server.arrived]
    assert requests == [(3, 7), (None, 8), (None, 9), (None, 7), (None, 8), (None, 9)]


async def test_a_request_with_useless_answers_is_sent_a_bounded_number_of_times() -> None:
    """This holds however often its step is repeated: it asks under the same id."""
    async with asking({"body": USELESS}, max_useless_answers=2) as (engine, server):
        first = await failure(engine, request(id="one"))
        assert first.retryable
        again = [await failure(engine, request(id="one")) for _ in range(5)]
        assert len(server.arrived) == 2
        assert {error.retryable for error in again} == {False}
        assert "content" in str(again[0])
        await failure(engine, request(id="another"))
        assert len(server.arrived) == 4


async def test_useless_answers_are_also_bounded_by_cost() -> None:
    price = Price(prompt=Decimal(1000), completion=Decimal(5000))  # 5 cents per answer
    limits: dict[str, Any] = {"max_useless_answers": 20, "max_useless_dollars": Decimal("0.12")}
    async with asking({"body": USELESS}, price=price, max_attempts=20, **limits) as (
        engine,
        server,
    ):
        await failure(engine, request())
    assert len(server.arrived) == 2
