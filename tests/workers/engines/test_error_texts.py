"""What an endpoint's error means, in the words of real servers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.workers.engines.test_endpoint_shapes import differences, outcome_of, serving

ANSWER = {
    "choices": [{"index": 0, "message": {"content": "42."}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 20, "completion_tokens": 6, "total_tokens": 26},
}


async def wrong(case: dict[str, Any]) -> list[str]:
    async with serving(case) as server:
        return differences(case["right"], await outcome_of(case, server), server)


def gemini(*details: dict[str, Any]) -> list[dict[str, Any]]:
    message = "You exceeded your current quota, please check your plan and billing details."
    return [{"error": {"code": 429, "message": message, "details": list(details)}}]


# elizaOS/eliza#4040, RooCodeInc/Roo-Code#3883, and OpenAI's text for a free account.
PASSING: dict[str, Any] = {
    "Groq": {"error": {"message": "Rate limit reached for model `m` on tokens per minute (TPM): "
        "Limit 12000, Used 4437, Requested 9854. Please try again in 11.4s. Need more tokens? "
        "Upgrade to Dev Tier today at https://console.groq.com/settings/billing",
        "type": "tokens", "code": "rate_limit_exceeded"}},
    "OpenAI": {"error": {"message": "Rate limit reached for m on requests per min. Limit: 3 / min. "
        "Please try again in 20s. Visit https://platform.openai.com/account/billing to add a "
        "payment method.", "type": "requests"}},
    "Gemini": gemini({"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "0.1s"}),
}  # fmt: skip


@pytest.mark.parametrize("body", PASSING.values(), ids=PASSING)
async def test_a_rate_limit_that_mentions_billing_is_retried(body: Any) -> None:
    answers = [{"status": 429, "body": body}, {"body": ANSWER}]
    assert await wrong({"answers": answers, "right": {"text": "42.", "requests": 2}}) == []


async def test_an_empty_account_is_not_asked_again() -> None:
    right = {"error_kind": "rate_limited", "retryable": False, "requests": 1}
    assert await wrong({"status": 429, "body": gemini(), "right": right}) == []


# popjane/free_chatgpt_api#76, gabrielkoerich/orch#3150; a 403 may mean money, not the key.
BROKE: dict[str, tuple[int, Any]] = {
    "SiliconFlow": (403, {"code": 30001, "message": "Sorry, your account balance is insufficient"}),
    "one-api": (403, {"error": {"message": "user quota is not enough",
                                "code": "insufficient_user_quota"}}),
    "new-api": (403, {"error": {"message": "该令牌额度已用尽", "type": "new_api_error"}}),
    "xAI, a new team": (403, {"error": "Your newly created team doesn't have any credits yet."}),
    "xAI": (429, {"error": "Your team has either used all available credits or reached its monthly "
                  "spending limit."}),
    "Volcengine": (403, {"error": {"code": "AccountOverdueError",
                                   "message": "your account has an overdue balance"}}),
    "DashScope": (400, {"error": {"code": "Arrearage", "message": "Access denied, please make sure "
                                  "your account is in good standing."}}),
    "DashScope's free tier": (403, {"error": {"message": "The free tier of the model has been "
                                              "exhausted."}}),
    "OpenRouter's key": (403, {"error": {"message": "Key limit exceeded (weekly limit)."}}),
    "LiteLLM": (400, {"error": {"message": "Budget has been exceeded! Max budget: 10.0"}}),
    "GLM": (429, {"error": {"code": "1113", "message": "余额不足或无可用资源包,请充值。"}}),
}  # fmt: skip


@pytest.mark.parametrize(("status", "body"), BROKE.values(), ids=BROKE)
async def test_an_account_without_money_is_named_whatever_the_status(
    status: int, body: Any
) -> None:
    right = {"error_kind": "rate_limited", "retryable": False, "requests": 1,
             "error_contains": ["add credit"]}  # fmt: skip
    assert await wrong({"status": status, "body": body, "right": right}) == []


@pytest.mark.parametrize(
    ("words", "seconds"),
    [
        ("Rate limit reached. Please try again in 1m26.4s. Visit the settings.", 86.4),
        ("Please try again in 334ms.", 0.334),
        ("token rate limit. Please retry after 35 seconds.", 35.0),
        ("max concurrency: 1, please try again after 1 seconds", 1.0),
        ("Please retry in 34.07s.", 34.07),
        ("Too many requests, please wait 2 minutes", 120.0),
        ("You have exhausted your capacity. Your quota will reset after 1h2m3s.", 3723.0),
        ("retry 3 times, then try again in a moment", None),
    ],
)
async def test_a_wait_in_words_is_a_minimum(words: str, seconds: float | None) -> None:
    """LiteLLM's proxy passes on the text and drops the header."""
    async with serving({"status": 429, "body": {"error": {"message": words}}}) as server:
        outcome = await outcome_of({}, server, max_attempts=1)
    assert getattr(outcome.error, "retry_after", "no error") == pytest.approx(seconds)


# PostHog/posthog#82310, firezone/firezone#15066
@pytest.mark.parametrize("name", ["retry_after", "retryAfter", "retry_after_seconds"])
async def test_a_wait_in_a_field_is_a_minimum(name: str) -> None:
    body = {"error": {"message": "Too many requests", name: 12.5}}
    async with serving({"status": 429, "body": body}) as server:
        outcome = await outcome_of({}, server, max_attempts=1)
    assert getattr(outcome.error, "retry_after", None) == 12.5


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (424, "The request failed due to an error while processing the model."),  # Bedrock
        (498, "Flex tier capacity exceeded, try again later."),  # Groq
        (499, "The operation was cancelled."),  # Gemini
    ],
)
async def test_a_failure_of_the_server_with_a_status_of_its_own_is_retried(
    status: int, message: str
) -> None:
    answers = [{"status": status, "body": {"error": {"message": message}}}, {"body": ANSWER}]
    assert await wrong({"answers": answers, "right": {"text": "42.", "requests": 2}}) == []


async def test_a_wait_of_the_header_precedes_one_in_words() -> None:
    body = {"error": {"message": "Please try again in 40s."}}
    async with serving({"status": 429, "headers": {"retry-after": "3"}, "body": body}) as server:
        outcome = await outcome_of({}, server, max_attempts=1)
    assert getattr(outcome.error, "retry_after", None) == 3.0


def behind_openrouter(raw: Any) -> Any:
    words = raw if isinstance(raw, str) else json.dumps(raw)
    return {"error": {"message": "Provider returned error", "metadata": {"raw": words}}}


# diegosouzapw/OmniRoute#3044, anomalyco/opencode#24462, NousResearch/hermes-agent#94199.
BEHIND: dict[str, tuple[int, Any, dict[str, Any]]] = {
    "a long prompt": (
        400, {"error": {"message": "This model's maximum context length is 9000 tokens."}},
        {"error_kind": "context_overflow"},
    ),
    "a list": (
        400, [{"error": {"message": "The input token count (9) exceeds the maximum number of "
                         "tokens allowed (8)."}}],
        {"error_kind": "context_overflow"},
    ),
    "no money": (
        429, {"error": {"message": "Your account is suspended due to insufficient balance"}},
        {"error_kind": "rate_limited", "retryable": False},
    ),
    "a filter": (
        400, {"error": {"message": "filtered", "code": "content_filter"}},
        {"error_kind": "content_filter"},
    ),
    "plain words": (
        400, "The input is longer than the model's context length.",
        {"error_kind": "context_overflow"},
    ),
    "no JSON": (400, "{oops", {"error_kind": "bad_request", "error_contains": ["{oops"]}),
}  # fmt: skip


@pytest.mark.parametrize(("status", "raw", "right"), BEHIND.values(), ids=BEHIND)
async def test_an_error_of_the_server_behind_a_gateway_counts(
    status: int, raw: Any, right: dict[str, Any]
) -> None:
    body = behind_openrouter(raw)
    assert await wrong({"status": status, "body": body, "right": right | {"requests": 1}}) == []


@pytest.mark.parametrize(
    "words", ["API key not valid. Please pass a valid API key.", "Incorrect API key provided: xa"]
)
async def test_a_refused_key_is_named_although_the_status_is_400(words: str) -> None:
    """Gemini's and xAI's answer to a wrong key."""
    right = {"error_kind": "auth", "retryable": False, "error_contains": ["api_key_env"]}
    assert await wrong({"status": 400, "body": {"error": words}, "right": right}) == []


@pytest.mark.parametrize("code", ["tool_use_failed", "json_validate_failed"])
async def test_an_output_that_its_own_server_cannot_read_is_requested_again(code: str) -> None:
    """pydantic/pydantic-ai#2774, zeroclaw-labs/zeroclaw#5670: Groq's 400."""
    body = {"error": {"message": "Failed to call a function. Please adjust your prompt.",
                      "type": "invalid_request_error", "code": code,
                      "failed_generation": "<function=now{}</function>"}}  # fmt: skip
    answers = [{"status": 400, "body": body}, {"body": ANSWER}]
    assert await wrong({"answers": answers, "right": {"text": "42.", "requests": 2}}) == []


async def test_google_s_delay_is_a_minimum() -> None:
    body = gemini({"retryDelay": "7.5s"})
    async with serving({"status": 429, "body": body}) as server:
        outcome = await outcome_of({}, server, max_attempts=1)
    assert outcome.error is not None
    assert getattr(outcome.error, "retry_after", None) == 7.5


# Z.ai (NousResearch/hermes-agent#2600) and GitHub Models (cline/cline#995).
# anomalyco/opencode#11141 (LM Studio); GLM and Baidu in their own words.
TOO_LONG: list[tuple[int, Any]] = [
    (400, {"error": {"code": "1261", "message": "Prompt exceeds max length"}}),
    (413, {"error": {"code": "tokens_limit_reached",
                     "message": "Request body too large for m. Max size: 8000 tokens."}}),
    (400, {"error": "Cannot truncate prompt with n_keep (15028) >= n_ctx (7424)"}),
    (400, {"error": {"code": "1261", "message": "Prompt 超长"}}),
    (400, {"error": {"message": "输入长度超过模型最大上下文长度"}}),
    (400, {"error": {"message": "the length of input messages exceeds the limit of 7168"}}),
]  # fmt: skip


@pytest.mark.parametrize(("status", "body"), TOO_LONG)
async def test_a_prompt_that_is_too_long_is_recognized(status: int, body: Any) -> None:
    right = {"error_kind": "context_overflow", "requests": 1}
    assert await wrong({"status": status, "body": body, "right": right}) == []


@pytest.mark.parametrize(
    "message",
    [  # microsoft/autogen#6377, camel-ai/camel#2215; Bedrock's limit of the answer
        "Invalid 'messages[1].tool_calls[0].id': string too long. Expected a string with maximum "
        "length 40, but got a string with length 54 instead.",
        "Invalid 'messages[2].tool_call_id': string too long.",
        "Invalid 'messages[1].name': string too long.",
        "Invalid 'messages[3].tool_calls': array too long.",
        "The maximum tokens you requested exceeds the model limit of 8192. Try again with a "
        "maximum tokens value that is lower than 8192.",
    ],
)
async def test_another_limit_than_the_context_is_a_bad_request(message: str) -> None:
    right = {"error_kind": "bad_request", "retryable": False}
    assert await wrong({"status": 400, "body": {"message": message}, "right": right}) == []


async def test_bedrock_s_throttling_is_not_a_prompt_that_is_too_long() -> None:
    """It counts "too many tokens" per minute, also in the middle of a stream."""
    words = "Too many tokens, please wait before trying again."
    right = {"error_kind": "unavailable", "retryable": True}
    assert await wrong({"status": 503, "body": {"message": words}, "right": right}) == []
    chunk = {"choices": [{"index": 0, "delta": {"content": "The"}}]}
    stream = [chunk, {"error": {"message": f"(ThrottlingException): {words}"}}]
    assert await wrong({"sse": stream, "done": False, "right": right}) == []


FILTERED: dict[str, tuple[int, Any]] = {
    "OpenRouter": (403, {"error": {"code": 403, "message": "Input flagged",
                                   "metadata": {"reasons": ["violence"]}}}),
    "OpenRouter, longer": (403, {"error": {"code": 403, "message": "m requires moderation on P. "
                                           "Your input was flagged for \"violence\"."}}),
    "xAI": (403, {"code": "The caller does not have permission to execute the operation",
                  "error": "Content violates usage guidelines. Failed check: SAFETY_CHECK_TYPE"}),
    "DeepSeek": (400, {"error": {"message": "Content Exists Risk", "code": "invalid_request"}}),
    "Anthropic": (400, {"error": {"message": "Output blocked by content filtering policy"}}),
    "OpenAI": (400, {"error": {"message": "Invalid prompt: your prompt was flagged as potentially "
                               "violating our usage policy.", "code": "invalid_prompt"}}),
    "Z.ai": (400, {"error": {"code": "1301", "message": "系统检测到输入内容可能包含敏感内容"}}),
    "LiteLLM": (400, {"error": {"message": "litellm.ContentPolicyViolationError: AzureException"}}),
    "LiteLLM's guardrail": (400, {"error": {"message": "{'error': 'Violated guardrail policy'}"}}),
    "Z.ai, in English": (400, {"error": {"code": "1301", "message": "System detected potentially "
                                         "unsafe or sensitive content in input or generation."}}),
    "Volcengine": (400, {"error": {"code": "InputTextSensitiveContentDetected", "message": "The "
                                   "request failed."}}),
    "MiniMax": (422, {"error": {"message": "input new_sensitive (1026)"}}),
    "MiniMax, with status 200": (200, {"base_resp": {"status_code": 1026,
                                            "status_msg": "input new_sensitive"}}),
    "Bedrock": (400, {"message": "The generated text has been blocked by our content filters."}),
    "Gemini": (400, {"error": {"message": "Prompt was blocked due to PROHIBITED_CONTENT"}}),
    "xAI, the answer": (400, {"error": "Generated content rejected by content moderation."}),
    "OpenAI, limited": (400, {"error": {"message": "Invalid prompt: we've limited access to this "
                              "content for safety reasons.", "code": "invalid_prompt"}}),
}  # fmt: skip


@pytest.mark.parametrize(("status", "body"), FILTERED.values(), ids=FILTERED)
async def test_a_filter_that_says_so_only_in_words_is_no_bad_key(status: int, body: Any) -> None:
    right = {"error_kind": "content_filter", "retryable": False, "requests": 1}
    assert await wrong({"status": status, "body": body, "right": right}) == []


async def test_a_key_without_rights_is_an_auth_error() -> None:
    body = {"error": {"message": "Your key has been flagged for review and has no permission"}}
    assert await wrong({"status": 403, "body": body, "right": {"error_kind": "auth"}}) == []


# CherryHQ/cherry-studio#11287 (MiniMax), Baidu, Tencent, Cloudflare, Langchain-Chatchat#2607.
WITHOUT_CHOICES: dict[str, Any] = {
    "MiniMax": {"choices": None, "usage": {"total_tokens": 0},
                "base_resp": {"status_code": 1008, "status_msg": "worker lost"}},
    "Baidu": {"error_code": 17, "error_msg": "worker lost"},
    "Tencent": {"Response": {"Error": {"Code": "Failed", "Message": "worker lost"}}},
    "Cloudflare": {"errors": [{"message": "worker lost", "code": 3040}]},
    "Chatchat": {"choices": None, "error_code": 500, "text": "worker lost"},
}  # fmt: skip


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streaming"])
@pytest.mark.parametrize("body", WITHOUT_CHOICES.values(), ids=WITHOUT_CHOICES)
async def test_an_error_with_status_200_is_quoted(body: Any, stream: bool) -> None:
    right = {"error_contains": ["worker lost"]}
    assert await wrong({"body": body, "request": {"stream": stream}, "right": right}) == []


PRETTY = json.dumps({"error": {"code": 503, "message": "worker lost"}}, indent=2)
LATE: dict[str, str | dict[str, Any]] = {
    "MiniMax": WITHOUT_CHOICES["MiniMax"],
    "Chatchat": WITHOUT_CHOICES["Chatchat"],
    "FastAPI": {"detail": "worker lost"},
    "message": {"code": 500, "message": "worker lost"},
    "plain text": "data: Internal error: worker lost\n\n",
    "Google's JSON on several lines": f"{PRETTY}\n",
    "Google's list": f"[{PRETTY}\n]\n",
}


@pytest.mark.parametrize("event", LATE.values(), ids=LATE)
async def test_an_error_after_the_first_words_of_a_stream_is_quoted(event: Any) -> None:
    chunk = {"choices": [{"index": 0, "delta": {"content": "The"}}]}
    right = {"error_contains": ["worker lost"], "retryable": True}
    assert await wrong({"sse": [chunk, event], "done": False, "right": right}) == []
