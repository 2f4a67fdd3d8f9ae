"""The calls of a session that continue each other form one sample, tokenized once."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.runtime.gateway.conftest import JsonBody, asked
from tests.runtime.gateway.scripted_gateway import ScriptedGateway
from tests.runtime.gateway.test_chat_completions import WEATHER


async def call(http: httpx.AsyncClient, path: str, body: JsonBody, **headers: str) -> JsonBody:
    body = body | {"return_token_ids": True}
    response = await http.post(path, json=body, headers=headers)
    assert response.status_code == 200, response.text
    return response.json()


def ids(completion: JsonBody) -> list[int]:
    """The token ids of prompt and output together."""
    return completion["prompt_token_ids"] + completion["choices"][0]["token_ids"]


def message(completion: JsonBody) -> JsonBody:
    return completion["choices"][0]["message"]


def begins_with(completion: JsonBody, earlier: JsonBody) -> bool:
    return completion["prompt_token_ids"][: len(ids(earlier))] == ids(earlier)


def place(gateway: ScriptedGateway, way: str, name: str) -> tuple[str, dict[str, str]]:
    """The URL and the headers of a call in the session."""
    if way == "path":
        return f"{gateway.root}/sessions/{name}/v1/chat/completions", {}
    return f"{gateway.url}/chat/completions", {"x-loopline-session": name}


@pytest.mark.parametrize("way", ["path", "header"])
async def test_the_second_call_of_a_session_starts_with_the_token_ids_of_the_first(
    gateway: ScriptedGateway, http: httpx.AsyncClient, way: str
) -> None:
    path, headers = place(gateway, way, f"two-calls-{way}")
    body = asked("What is 12 * 7 + 5?")
    first = await call(http, path, body, **headers)
    body["messages"] += [message(first), {"role": "user", "content": "Are you sure?"}]
    second = await call(http, path, body, **headers)
    assert begins_with(second, first)
    assert second["usage"]["prompt_tokens"] == len(second["prompt_token_ids"])
    body["messages"] += [message(second), {"role": "user", "content": "Really?"}]
    assert begins_with(await call(http, path, body, **headers), second)


async def test_a_session_continues_across_tool_calls(
    gateway: ScriptedGateway, http: httpx.AsyncClient
) -> None:
    path, _ = place(gateway, "path", "through-tools")
    body = asked("Weather in Oslo?", tools=[WEATHER])
    first = await call(http, path, body)
    call_id = message(first)["tool_calls"][0]["id"]
    result = {"role": "tool", "tool_call_id": call_id, "content": "Oslo has rain."}
    body["messages"] += [message(first), result]
    second = await call(http, path, body)
    assert begins_with(second, first)


async def test_a_changed_conversation_starts_a_new_sample(
    gateway: ScriptedGateway, http: httpx.AsyncClient
) -> None:
    path, _ = place(gateway, "path", "changed")
    body = asked("What is 12 * 7 + 5?")
    first = await call(http, path, body)
    changed: dict[str, Any] = message(first) | {"content": "It is 90."}
    body["messages"] += [changed, {"role": "user", "content": "Are you sure?"}]
    second = await call(http, path, body)
    assert not begins_with(second, first)


async def test_a_session_can_branch(gateway: ScriptedGateway, http: httpx.AsyncClient) -> None:
    path, _ = place(gateway, "path", "branches")
    first = await call(http, path, asked("What is 12 * 7 + 5?"))
    for follow_up in ("Are you sure?", "Why?"):
        body = asked("What is 12 * 7 + 5?")
        body["messages"] += [message(first), {"role": "user", "content": follow_up}]
        assert begins_with(await call(http, path, body), first)


async def test_the_runs_of_a_session_are_tagged_with_its_name(
    gateway: ScriptedGateway, http: httpx.AsyncClient
) -> None:
    path, _ = place(gateway, "path", "tagged")
    completion = await call(http, path, asked("How old?", metadata={"task": "t7"}))
    run_id = completion["id"].removeprefix("chatcmpl-")
    output = gateway.ok("runs", "show", run_id, "--json")
    assert '"session":"tagged"' in output.replace(" ", "")
    assert '"task":"t7"' in output.replace(" ", "")


@pytest.mark.parametrize(("name", "header"), [("one", "two"), ("-x", ""), ("a" * 129, "")])
async def test_a_session_needs_one_plain_name(
    gateway: ScriptedGateway, http: httpx.AsyncClient, name: str, header: str
) -> None:
    path, _ = place(gateway, "path", name)
    headers = {"x-loopline-session": header} if header else {}
    response = await http.post(path, json=asked("How old?"), headers=headers)
    assert response.status_code == 400
