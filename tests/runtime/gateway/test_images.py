"""Images in messages reach an endpoint that takes them, and nothing else."""

from __future__ import annotations

import json
import threading
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.runtime.gateway.scripted_gateway import ScriptedGateway, serving

PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwAD"
    "hgGAWjR9awAAAABJRU5ErkJggg=="
)
ELSEWHERE = "https://there.is/one.png"
ANSWER = {
    "id": "c", "object": "chat.completion", "created": 1, "model": "eyes",
    "choices": [{
        "index": 0, "finish_reason": "stop",
        "message": {"role": "assistant", "content": "A red pixel."},
    }],
    "usage": {"prompt_tokens": 300, "completion_tokens": 4, "total_tokens": 304},
}  # fmt: skip


@dataclass
class Endpoint:
    """An endpoint and the bodies that it received."""

    url: str = ""
    bodies: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    @property
    def last_content(self) -> Any:
        return self.bodies[-1]["messages"][-1]["content"]


@contextmanager
def listening(answer: Mapping[str, Any] = ANSWER) -> Generator[Endpoint]:
    endpoint = Endpoint()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"])
            endpoint.bodies.append(json.loads(self.rfile.read(length)))
            body = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        endpoint.url = f"http://127.0.0.1:{server.server_port}/v1"
        try:
            yield endpoint
        finally:
            server.shutdown()


@contextmanager
def in_front_of(answer: Mapping[str, Any]) -> Generator[tuple[ScriptedGateway, Endpoint]]:
    """Yield a gateway whose model `big` is an endpoint that always gives this answer."""
    with listening(answer) as endpoint:
        settings = ("engine=openai", "model=big", f"base_url={endpoint.url}")
        with serving(*(f"models.big.{setting}" for setting in settings)) as gateway:
            yield gateway, endpoint


@pytest.fixture(scope="module")
def seeing() -> Iterator[tuple[ScriptedGateway, Endpoint]]:
    with listening() as endpoint:
        models = [
            f"models.{name}.{setting}"
            for name in ("eyes", "blind")
            for setting in ("engine=openai", f"model={name}", f"base_url={endpoint.url}")
        ]
        more = ("models.eyes.images=true", "models.eyes.image_tokens=500")
        with serving(*models, *more) as gateway:
            yield gateway, endpoint


async def test_parts_of_a_chat_message_reach_the_endpoint_in_their_order(
    seeing: tuple[ScriptedGateway, Endpoint],
) -> None:
    gateway, endpoint = seeing
    content = [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": PIXEL, "detail": "low"}},
        {"type": "text", "text": "And this?"},
        {"type": "image_url", "image_url": {"url": ELSEWHERE}},
    ]
    async with gateway.openai() as client:
        completion = await client.chat.completions.create(
            model="eyes",
            messages=[{"role": "user", "content": content}],  # pyright: ignore[reportArgumentType]
        )
    assert completion.choices[0].message.content == "A red pixel."
    assert completion.usage is not None
    assert completion.usage.prompt_tokens == 300
    assert endpoint.last_content == content


async def test_a_response_takes_images_lists_them_and_can_be_continued(
    seeing: tuple[ScriptedGateway, Endpoint],
) -> None:
    gateway, endpoint = seeing
    async with gateway.openai() as client:
        response = await client.responses.create(
            model="eyes",
            input=[
                {
                    "role": "user",
                    "content": [
                        {"type": "input_text", "text": "What is this?"},
                        {"type": "input_image", "image_url": PIXEL, "detail": "auto"},
                    ],
                }
            ],
        )
        assert response.output_text == "A red pixel."
        assert endpoint.last_content == [
            {"type": "text", "text": "What is this?"},
            {"type": "image_url", "image_url": {"url": PIXEL, "detail": "auto"}},
        ]
        items = await client.responses.input_items.list(response.id)
        [item] = [entry.model_dump() for entry in items.data]
        assert [part["type"] for part in item["content"]] == ["input_text", "input_image"]
        assert item["content"][1]["image_url"] == PIXEL
        await client.responses.create(model="eyes", input="Sure?", previous_response_id=response.id)
        sent = endpoint.bodies[-1]["messages"]
        assert [message["role"] for message in sent] == ["user", "assistant", "user"]
        assert sent[0]["content"][1]["image_url"]["url"] == PIXEL


@pytest.mark.parametrize("model", ["blind", "llm", "workflow/delegate"])
async def test_images_for_a_model_that_takes_none_are_refused_before_it_is_asked(
    seeing: tuple[ScriptedGateway, Endpoint], model: str
) -> None:
    gateway, endpoint = seeing
    count = len(endpoint.bodies)
    chat = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": PIXEL}}]}]
    items = [{"role": "user", "content": [{"type": "input_image", "image_url": PIXEL}]}]
    async with gateway.http() as http:
        for path, body in (
            ("chat/completions", {"model": model, "messages": chat}),
            ("responses", {"model": model, "input": items}),
        ):
            answer = await http.post(path, json=body)
            error = answer.json()["error"]
            assert (answer.status_code, error["code"]) == (400, "unsupported_value"), answer.text
            assert "takes only text" in error["message"]
            assert error["param"] in ("messages", "input")
    assert len(endpoint.bodies) == count


async def test_a_budget_counts_the_tokens_of_an_image_and_not_its_bytes(
    seeing: tuple[ScriptedGateway, Endpoint],
) -> None:
    gateway, _ = seeing
    large = PIXEL + "A" * 400_000
    key = gateway.new_key("thrifty", "--tokens-per-day", "4000")["key"]
    body = {
        "model": "eyes",
        "max_tokens": 100,
        "messages": [
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": large}}]}
        ],
    }
    async with gateway.http(key) as http:
        answer = await http.post("chat/completions", json=body)
    assert answer.status_code == 200, answer.text
