"""The scripted server from its clients' view: in this process and in a separate one."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from loopline.workers.engines.faults import FaultPlan
from loopline.workers.scripted_api import ScriptedServer, ServerOptions

BODY: dict[str, Any] = {
    "model": "m",
    "messages": [{"role": "user", "content": "What is 12 * 7 + 5?"}],
    "temperature": 0,
}


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    async with ScriptedServer() as server:
        yield server


async def post(server: ScriptedServer, body: Any = BODY, **headers: str) -> httpx.Response:
    async with httpx.AsyncClient() as client:
        return await client.post(
            f"{server.url}/chat/completions",
            content=body if isinstance(body, bytes) else json.dumps(body),
            headers=headers,
        )


async def stats(server: ScriptedServer, query: str = "") -> dict[str, Any]:
    async with httpx.AsyncClient() as client:
        response = await client.get(server.url.removesuffix("/v1") + "/stats" + query)
        return response.json()


async def test_the_answer_is_right_and_deterministic(server: ScriptedServer) -> None:
    first, again = await post(server), await post(server)
    assert first.json() == again.json()
    assert "\\boxed{89}" in first.json()["choices"][0]["message"]["content"]


async def test_a_streamed_answer_equals_the_whole_answer(server: ScriptedServer) -> None:
    tools = [{"type": "function", "function": {"name": "delegate", "parameters": {}}}]
    for extra in ({}, {"tools": tools}, {"n": 2, "temperature": 1}, {"max_tokens": 3}):
        whole = (await post(server, {**BODY, **extra})).json()
        streaming = {**BODY, **extra, "stream": True, "stream_options": {"include_usage": True}}
        lines = (await post(server, streaming)).text.split("\n\n")
        assert lines[-2:] == ["data: [DONE]", ""]
        chunks = [json.loads(line.removeprefix("data: ")) for line in lines[:-2]]
        assert chunks[-1]["usage"] == whole["usage"]
        for choice in whole["choices"]:
            parts = [
                other_choice
                for chunk in chunks
                for other_choice in chunk["choices"]
                if other_choice["index"] == choice["index"]
            ]
            text = "".join(part["delta"].get("content") or "" for part in parts)
            arguments = "".join(
                call["function"]["arguments"]
                for part in parts
                for call in part["delta"].get("tool_calls", ())
            )
            assert text == (choice["message"]["content"] or "")
            assert arguments == "".join(
                call["function"]["arguments"] for call in choice["message"].get("tool_calls", ())
            )
            assert parts[-1]["finish_reason"] == choice["finish_reason"]


async def test_the_statistics_count_every_answer_and_every_repetition(
    server: ScriptedServer,
) -> None:
    answers = [
        await post(server, **{"x-client-request-id": "a"}),
        await post(server, **{"x-client-request-id": "b"}),
        await post(server, {**BODY, "n": 2}, **{"x-client-request-id": "b"}),
    ]
    await post(server, {"model": "m"})
    books = await stats(server, "?list=1")
    usages = [answer.json()["usage"] for answer in answers]
    assert books["prompt_tokens"] == sum(usage["prompt_tokens"] for usage in usages)
    assert books["completion_tokens"] == sum(usage["completion_tokens"] for usage in usages)
    assert (books["calls"], books["completions"], books["arrivals"]) == (3, 4, 4)
    assert (books["distinct_requests"], books["repeated_requests"]) == (2, 1)
    assert (books["distinct_ids"], books["repeated_ids"]) == (2, 1)
    assert books["ids"] == {"a": 1, "b": 2}
    assert books["by_model"]["m"]["calls"] == 3
    assert "requests" not in await stats(server)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"{", "JSON"),
        (b"\xff", "JSON"),
        ({"model": "m"}, "messages"),
        ({**BODY, "messages": []}, "messages"),
        ({**BODY, "temperature": 9}, "temperature"),
        ({**BODY, "n": 0}, "n:"),
        ({**BODY, "messages": [{"role": "wizard", "content": "x"}]}, "role"),
    ],
)
async def test_an_invalid_body_is_a_400_that_names_the_place(
    server: ScriptedServer, body: Any, says: str
) -> None:
    response = await post(server, body)
    assert response.status_code == 400
    assert says in response.json()["error"]["message"]


async def test_an_oversized_body_is_a_413(server: ScriptedServer) -> None:
    response = await post(server, b" " * (17 * 1024 * 1024))
    assert response.status_code == 413


async def test_models_are_listed_and_unknown_ones_are_a_404() -> None:
    async with ScriptedServer(ServerOptions(models=("a", "b"))) as server:
        async with httpx.AsyncClient() as client:
            listed = (await client.get(f"{server.url}/models")).json()
        assert [model["id"] for model in listed["data"]] == ["a", "b"]
        assert (await post(server)).status_code == 404


async def test_a_429_tells_when_to_retry() -> None:
    plan = FaultPlan(rate_limited=1.0, retry_after_seconds=1.5)
    async with ScriptedServer(ServerOptions(faults=plan)) as server:
        response = await post(server)
        assert (response.status_code, response.headers["retry-after"]) == (429, "1.5")
        assert (await stats(server))["faults"] == {"rate_limited": 1}


async def test_a_hanging_request_does_not_keep_the_server_from_closing() -> None:
    async with ScriptedServer(ServerOptions(faults=FaultPlan(hang=1.0))) as server:
        hanging = asyncio.create_task(post(server))
        await server.served.wait_for_arrivals(1)
    assert (await hanging).status_code == 503


async def test_a_client_that_gives_up_ends_its_hanging_request() -> None:
    async with ScriptedServer(ServerOptions(faults=FaultPlan(hang=1.0))) as server:
        hanging = asyncio.create_task(post(server))
        await server.served.wait_for_arrivals(1)
        hanging.cancel()
        await asyncio.wait({hanging})
        async with asyncio.timeout(10):
            while (await stats(server))["in_flight"]:
                pass


async def test_a_hundred_concurrent_requests_take_one_latency() -> None:
    async with ScriptedServer(ServerOptions(latency_seconds=1.0)) as server:
        limits = httpx.Limits(max_connections=100)
        async with httpx.AsyncClient(limits=limits, timeout=60) as client:
            started = time.monotonic()
            url = f"{server.url}/chat/completions"
            await asyncio.gather(*(client.post(url, json=BODY) for _ in range(100)))
            assert 1.0 <= time.monotonic() - started < 20
        assert server.served.peak_in_flight > 20


async def test_mistakes_can_be_limited_to_one_model() -> None:
    question = "What is 6 * 7?\nAnswer type: integer."
    body = {**BODY, "messages": [{"role": "user", "content": question}]}
    async with ScriptedServer(ServerOptions(mistakes={"slm": 1.0})) as server:
        right = (await post(server, body)).json()["choices"][0]["message"]["content"]
        wrong = (await post(server, {**body, "model": "slm"})).json()["choices"][0]["message"]
        assert "\\boxed{42}" in right
        assert "\\boxed{42}" not in wrong["content"]


async def test_the_server_process_prints_its_address_serves_and_exits_on_sigterm() -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "loopline.workers.scripted_api", "--port", "0",
        "--fault", "server_error=1",
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    address = json.loads(await process.stdout.readline())["url"]
    async with httpx.AsyncClient() as client:
        response = await client.post(f"{address}/chat/completions", json=BODY)
    assert response.status_code == 500
    process.send_signal(signal.SIGTERM)
    assert await process.wait() == 0


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["--fault", "server_error"], 2, "expected NAME=RATE"),
        (["--fault", "explode=1"], 2, "explode"),
        (["--require-key-env", "NOT_SET_ANYWHERE"], 2, "NOT_SET_ANYWHERE"),
    ],
)
async def test_the_server_process_exits_with_a_reason_on_bad_options(
    arguments: list[str], code: int, says: str
) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "loopline.workers.scripted_api", *arguments,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    _, errors = await process.communicate()
    assert process.returncode == code
    assert says in errors.decode()


async def test_a_taken_port_is_an_error(server: ScriptedServer) -> None:
    port = server.url.removesuffix("/v1").rsplit(":", 1)[1]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "loopline.workers.scripted_api", "--port", port,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    _, errors = await process.communicate()
    assert process.returncode == 1
    assert "choose another --port" in errors.decode()


async def test_an_idempotent_server_counts_a_key_once_and_repeats_its_answer() -> None:
    async with ScriptedServer(ServerOptions(idempotent=True)) as server:
        first = await post(server, **{"idempotency-key": "a"})
        again = await post(server, **{"idempotency-key": "a"})
        await post(server, **{"idempotency-key": "b"})
        assert first.json() == again.json()
        assert list(server.served.answers_by_content().values()) == [2]
        assert (await stats(server))["calls"] == 2
