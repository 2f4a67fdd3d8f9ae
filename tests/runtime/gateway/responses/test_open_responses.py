"""The Open Responses specification: the cases of its compliance suite that use HTTP.

The suite itself also runs, given a checkout of openresponses/openresponses after
`npm install --no-save tsx zod@3`: `OPEN_RESPONSES=PATH pytest tests/runtime/gateway`.
"""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.runtime.gateway.responses.conftest import WEATHER, Event, all_events
from tests.runtime.gateway.scripted_gateway import ScriptedGateway

CHECKOUT = os.environ.get("OPEN_RESPONSES", "")
FIELDS = {
    "id", "object", "created_at", "completed_at", "status", "incomplete_details", "model",
    "previous_response_id", "instructions", "output", "error", "tools", "tool_choice",
    "truncation", "parallel_tool_calls", "text", "top_p", "presence_penalty",
    "frequency_penalty", "top_logprobs", "temperature", "reasoning", "user", "usage",
    "max_output_tokens", "max_tool_calls", "store", "background", "service_tier", "metadata",
    "safety_identifier", "prompt_cache_key",
}  # fmt: skip
"""The fields that every response has."""
CASES: dict[str, dict[str, Any]] = {
    "basic-response": {"input": [{"type": "message", "role": "user", "content": "Say hello."}]},
    "system-prompt": {
        "input": [
            {"type": "message", "role": "system", "content": "You are a pirate."},
            {"type": "message", "role": "user", "content": "Say hello."},
        ]
    },
    "assistant-phase": {
        "input": [
            {"type": "message", "role": "user", "content": "Say hello."},
            {
                "type": "message",
                "role": "assistant",
                "phase": "commentary",
                "content": [{"type": "output_text", "text": "I am about to."}],
            },
            {"type": "message", "role": "user", "content": "Go on."},
        ]
    },
    "multi-turn": {
        "input": [
            {"type": "message", "role": "user", "content": "My name is Ada."},
            {"type": "message", "role": "assistant", "content": "Hello Ada."},
            {"type": "message", "role": "user", "content": "What is my name?"},
        ]
    },
    "tool-calling": {
        "input": [{"type": "message", "role": "user", "content": "What is the weather?"}],
        "tools": [WEATHER],
    },
}
OVER_HTTP = (*CASES, "response-output-phase-schema", "streaming-response")
"""The cases of the suite that run. The others need WebSockets, ids of models that
`/responses/compact` knows, or a model that sees images."""


def check_fields(response: dict[str, Any]) -> None:
    assert response.keys() >= FIELDS
    numbers = ("top_p", "temperature", "presence_penalty", "frequency_penalty", "top_logprobs")
    assert all(isinstance(response[name], int | float) for name in numbers)


@pytest.mark.parametrize("case", CASES)
async def test_a_case_is_completed_with_all_fields(http: httpx.AsyncClient, case: str) -> None:
    answer = await http.post("responses", json={"model": "llm", **CASES[case]})
    response = answer.json()
    assert (answer.status_code, response["status"]) == (200, "completed")
    check_fields(response)
    wanted = "function_call" if case == "tool-calling" else "message"
    assert wanted in [item["type"] for item in response["output"]]


@pytest.mark.parametrize("case", CASES)
async def test_a_streamed_case_ends_with_the_completed_response(
    http: httpx.AsyncClient, case: str
) -> None:
    body = {"model": "llm", "stream": True, **CASES[case]}
    events: list[Event] = await all_events(http, "POST", "responses", json=body)
    for event in events:
        if "response" in event:
            check_fields(event["response"])
    assert events[-1]["type"] == "response.completed"
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert done == events[-1]["response"]["output"]


async def test_every_event_has_a_name_and_a_number_and_the_stream_ends_with_done(
    http: httpx.AsyncClient,
) -> None:
    body = {"model": "llm", "stream": True, **CASES["basic-response"]}
    answer = await http.post("responses", json=body)
    assert answer.headers["content-type"].startswith("text/event-stream")
    *events, done, rest = answer.text.replace("\r", "").split("\n\n")
    assert (done, rest) == ("data: [DONE]", "")
    for number, event in enumerate(events):
        identifier, name, data = event.split("\n")
        body = json.loads(data.removeprefix("data: "))
        assert identifier == f"id: {number}"
        assert name == f"event: {body['type']}"
        assert body["sequence_number"] == number


@pytest.mark.skipif(not CHECKOUT, reason="no OPEN_RESPONSES=PATH of a checkout with its packages")
async def test_the_suite_itself_passes(gateway: ScriptedGateway) -> None:
    process = await asyncio.create_subprocess_exec(
        str(Path(CHECKOUT) / "node_modules/.bin/tsx"),
        "bin/compliance-test.ts",
        *("--base-url", gateway.url, "--model", "llm", "--json"),
        *("--filter", ",".join(OVER_HTTP)),
        cwd=CHECKOUT,
        env={**os.environ, "OPENRESPONSES_API_KEY": gateway.key},
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate()
    report = json.loads(output)
    assert [r for r in report["results"] if r["status"] != "passed"] == []
    assert report["summary"]["passed"] == len(OVER_HTTP)
