"""Embeddings by OpenAI's API, from a deployment with an endpoint whose model creates them."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import openai
import pytest

from loopline.workers.scripted_api import ScriptedServer, ServerOptions
from loopline.workers.scripted_api.embeddings import DIMENSIONS, vector_of
from tests.runtime.gateway.conftest import eventually
from tests.runtime.gateway.scripted_gateway import ScriptedGateway, serving


@dataclass
class Endpoint:
    """A scripted server that runs next to the test."""

    url: str
    server: ScriptedServer

    @property
    def calls(self) -> Any:
        return self.server.served.as_json(listed=False)["calls"]


@contextmanager
def scripted_endpoint() -> Generator[Endpoint]:
    ready: asyncio.Queue[Endpoint] = asyncio.Queue()
    loop = asyncio.new_event_loop()
    over = asyncio.Event()

    async def serve() -> None:
        async with ScriptedServer(ServerOptions(idempotent=True)) as server:
            ready.put_nowait(Endpoint(server.url, server))
            await over.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),), daemon=True)
    thread.start()
    try:
        yield asyncio.run_coroutine_threadsafe(ready.get(), loop).result(20)
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join(20)
        loop.close()


@dataclass
class Place:
    gateway: ScriptedGateway
    endpoint: Endpoint

    def post(self, body: dict[str, Any], key: str | None = None, **headers: str) -> httpx.Response:
        with self.gateway.client(key) as http:
            return http.post("/v1/embeddings", json=body, headers=headers)


@pytest.fixture(scope="module")
def place() -> Generator[Place]:
    with scripted_endpoint() as endpoint, socket.create_server(("127.0.0.1", 0)) as silent:
        models = (
            "models.embed.engine=openai", "models.embed.model=vectors",
            f"models.embed.base_url={endpoint.url}", "models.embed.embeddings=true",
            "models.embed.price.prompt=100",
            "models.silent.engine=openai", "models.silent.model=vectors",
            f"models.silent.base_url=http://127.0.0.1:{silent.getsockname()[1]}/v1",
            "models.silent.embeddings=true",
        )  # fmt: skip
        with serving(*models) as gateway:
            yield Place(gateway, endpoint)


def close(vector: list[float], wanted: list[float]) -> bool:
    return vector == pytest.approx(wanted, abs=1e-6)


async def test_openais_client_gets_the_vectors_in_the_order_of_the_texts(place: Place) -> None:
    """The client asks for base64 by default."""
    async with place.gateway.openai() as client:
        answer = await client.embeddings.create(model="embed", input=["a b", "c", "a b"])
    assert [item.index for item in answer.data] == [0, 1, 2]
    assert close(answer.data[0].embedding, vector_of("a b", DIMENSIONS))
    assert close(answer.data[1].embedding, vector_of("c", DIMENSIONS))
    assert answer.data[2].embedding == answer.data[0].embedding
    assert answer.model == "embed"
    assert answer.usage.prompt_tokens == answer.usage.total_tokens == 5


async def test_float_vectors_token_ids_and_dimensions_are_supported(place: Place) -> None:
    async with place.gateway.openai() as client:
        single = await client.embeddings.create(
            model="embed", input="hello", encoding_format="float", dimensions=5
        )
        ids = await client.embeddings.create(model="embed", input=[11, 12, 13], dimensions=4)
        lists = await client.embeddings.create(model="embed", input=[[11, 12, 13], [7]])
    assert close(single.data[0].embedding, vector_of("hello", 5))
    assert close(ids.data[0].embedding, vector_of([11, 12, 13], 4))
    assert [len(item.embedding) for item in lists.data] == [DIMENSIONS, DIMENSIONS]
    assert close(lists.data[1].embedding, vector_of([7], DIMENSIONS))
    assert ids.usage.prompt_tokens == 3


def test_a_request_is_a_recorded_run_with_its_usage_and_price(place: Place) -> None:
    answer = place.post({"model": "embed", "input": "one two three"})
    run_id = answer.headers["x-loopline-run"]
    with place.gateway.client() as http:
        run = http.get(f"/v1/runs/{run_id}").json()
        completion = http.get(f"/v1/chat/completions/chatcmpl-{run_id}")
    assert run["workflow"] == "embeddings"
    assert run["answer"] == f"1 vector of {DIMENSIONS} dimensions"
    assert run["usage"]["prompt_tokens"] == 3
    assert run["cost_micro_dollars"] == 300
    assert completion.status_code == 404, "vectors are no completion"


def test_a_repeated_idempotency_key_gets_the_same_vectors_from_one_call(place: Place) -> None:
    body, header = {"model": "embed", "input": "again"}, {"idempotency-key": "e-1"}
    before = place.endpoint.calls
    first, second = place.post(body, **header), place.post(body, **header)
    other = place.post({**body, "input": "another"}, **header)
    assert first.json() == second.json()
    assert first.headers["x-loopline-run"] == second.headers["x-loopline-run"]
    assert place.endpoint.calls == before + 1
    assert other.status_code == 409


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"input": ""}, "input"), ({"input": []}, "input"), ({"input": ["a", ""]}, "input"),
        ({"input": [-1]}, "input[0]"), ({"input": [["a"]]}, None), ({"input": 5}, "input"),
        ({"dimensions": 0}, "dimensions"), ({"encoding_format": "hex"}, "encoding_format"),
        ({"colour": "red"}, "colour"), ({"input": ["a"] * 2_049}, "input"),
    ],
)  # fmt: skip
def test_a_wrong_body_is_refused_by_the_name_of_its_field(
    place: Place, change: dict[str, Any], param: str | None
) -> None:
    answer = place.post({"model": "embed", "input": "x", **change})
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert param is None or error["param"] == param
    assert error["type"] == "invalid_request_error"


async def test_a_model_serves_either_embeddings_or_text(place: Place) -> None:
    async with place.gateway.openai() as client:
        with pytest.raises(openai.NotFoundError, match="these do: embed, silent") as no_vectors:
            await client.embeddings.create(model="llm", input="x")
        with pytest.raises(openai.NotFoundError, match="does not exist"):
            await client.embeddings.create(model="nobody", input="x")
        with pytest.raises(openai.BadRequestError, match="POST /v1/embeddings"):
            await client.chat.completions.create(
                model="embed", messages=[{"role": "user", "content": "Hello?"}]
            )
    assert no_vectors.value.code == "embeddings_not_supported"


def test_a_key_is_limited_to_its_models_and_its_daily_tokens(place: Place) -> None:
    chats = place.gateway.new_key("chats", "--model", "llm")["key"]
    refused = place.post({"model": "embed", "input": "x"}, key=chats)
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "model_not_allowed")

    little = place.gateway.new_key("little", "--model", "embed", "--tokens-per-day", "60")["key"]
    assert place.post({"model": "embed", "input": "a b c"}, key=little).status_code == 200
    much = place.post({"model": "embed", "input": "word " * 200}, key=little)
    assert (much.status_code, much.json()["error"]["code"]) == (429, "insufficient_quota")


def test_vectors_that_do_not_fit_a_message_are_refused_with_the_name_of_the_limit(
    place: Place,
) -> None:
    answer = place.post({"model": "embed", "input": ["x"] * 100, "dimensions": 4_096})
    assert answer.status_code == 413
    assert "max_message_bytes" in answer.json()["error"]["message"]


async def test_a_run_ends_when_its_client_leaves(place: Place) -> None:
    async def active() -> bool:
        with place.gateway.client() as http:
            return http.get("/v1/runs?workflow=embeddings&status=active").json()["data"] != []

    async def ended() -> bool:
        return not await active()

    async with place.gateway.http() as http:
        body = {"model": "silent", "input": "x"}
        asking = asyncio.create_task(http.post("embeddings", json=body, timeout=60))
        await eventually(active, "the run has started")
        asking.cancel()
        await asyncio.wait({asking})
    await eventually(ended, "no run is left")
