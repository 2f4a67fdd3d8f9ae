"""One vLLM server: its routes, the adapters that it has, how much it has to do."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx2
import orjson
from pydantic import BaseModel, ConfigDict, ValidationError

from loopline.workers.engines.openai.address import Address
from loopline.workers.engines.openai.complaints import complaint_in
from loopline.workers.engines.openai.connection import Connection
from loopline.workers.engines.openai.errors import Refused
from loopline.workers.engines.openai.sse import DONE, drain_payloads, sse_events
from loopline.workers.engines.openai.transport import Answer
from loopline.workers.engines.protocol import EngineError
from loopline.workers.engines.settings import ModelSettings
from loopline.workers.engines.vllm.wire import garbage_error

BLOCK = 64
"""Tokens: so far apart are the places up to which beginnings of prompts are compared."""
REMEMBERED_BLOCKS = 8192
"""Of prompts that a server has read, half a million tokens."""
_ADMIN_SECONDS = 120.0
"""For an adapter to be read, from a disk far away."""
_HEALTH_SECONDS = 5.0


@dataclass(frozen=True)
class _Completions(Address):
    def url(self, route: str = "completions") -> str:
        return super().url(route)


class _Card(BaseModel):
    model_config = ConfigDict(extra="ignore")

    id: str
    parent: str | None = None
    max_model_len: int | None = None


class _Cards(BaseModel):
    data: list[_Card]


class AdapterForgotten(EngineError):
    """The server knows no such model: it was started again, or somebody unloaded the adapter."""

    kind = "unknown_adapter"
    retryable = True


class Server:
    """See the module. Opens nothing before the first request."""

    def __init__(self, settings: ModelSettings, url: str, key: str) -> None:
        """Raises EngineError for a proxy of the environment that cannot be used."""
        self._address = _Completions.of(url)
        self.name = f"vLLM at {self._address.name}"
        own_settings = settings.model_copy(update={"base_url": url})
        self._connection = Connection(own_settings, self._address, self.name, key)
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._admin = httpx2.AsyncClient(headers=headers, trust_env=False, timeout=_ADMIN_SECONDS)
        self.model = ""
        """How the server calls the model without an adapter."""
        self.max_context: int | None = None
        self.load = 0
        """Completions that it is at."""
        self.down_until = 0.0
        """Monotonic seconds: it did not answer, and is not asked before then."""
        self._failures = 0
        self._adapters: set[str] = set()
        self._loading: dict[str, asyncio.Lock] = {}
        self._blocks: OrderedDict[int, None] = OrderedDict()

    @property
    def secrets(self) -> tuple[str, ...]:
        return tuple(self._connection.secrets)

    async def close(self) -> None:
        await self._connection.close()
        await self._admin.aclose()

    # Whether it is there.

    @property
    def is_up(self) -> bool:
        return bool(self.model) and time.monotonic() >= self.down_until

    def lost(self) -> None:
        """It did not answer. What it had of adapters may be gone with it; it is asked again after
        a while, longer each time."""
        self._failures += 1
        self.down_until = time.monotonic() + min(10.0, 0.25 * 2**self._failures)
        self._adapters.clear()
        self._blocks.clear()
        self.model = ""

    async def greet(self) -> bool:
        """Whether it answers; then its model's name and context are known."""
        try:
            answer = await self._admin.get(self._address.url("models"), timeout=_HEALTH_SECONDS)
            cards = _Cards.model_validate_json(answer.content).data
        except (httpx2.HTTPError, OSError, RuntimeError, ValidationError):
            self.lost()
            return False
        bases = [card for card in cards if card.parent is None]
        if answer.status_code != 200 or not bases:
            self.lost()
            return False
        self.model, self.max_context = bases[0].id, bases[0].max_model_len
        self._failures, self.down_until = 0, 0.0
        return True

    # Completions.

    @contextmanager
    def working(self, rows: int, prompt: Sequence[int], adapter: str) -> Generator[None]:
        """While it generates this many completions of this prompt."""
        self.load += rows
        for block in prompt_blocks(prompt, adapter):
            self._blocks[block] = None
            self._blocks.move_to_end(block)
        while len(self._blocks) > REMEMBERED_BLOCKS:
            self._blocks.popitem(last=False)
        try:
            yield
        finally:
            self.load -= rows

    def known_blocks(self, blocks: Sequence[int]) -> int:
        """How many of a prompt's first blocks it has read before."""
        for count, block in enumerate(blocks):
            if block not in self._blocks:
                return count
        return len(blocks)

    async def complete(self, body: dict[str, Any], request_id: str, traceparent: str = "") -> bytes:
        """The whole answer. Raises EngineError; `AdapterForgotten` for a model that it has not."""
        response = await self._post(body, request_id, traceparent)
        try:
            return b"".join([part async for part in self._connection.parts(response)])
        finally:
            await response.aclose()

    async def stream(
        self, body: dict[str, Any], request_id: str, traceparent: str = ""
    ) -> AsyncGenerator[str]:
        """The data of each event. Raises as `complete` does, and EngineError for a stream that ends
        before its end is marked. Closing it ends the work at the server."""
        response = await self._post(body, request_id, traceparent)
        try:
            events = sse_events(self._connection.parts(response))
            async for event in events:
                if event.data.strip() == DONE:
                    await drain_payloads(events)
                    return
                yield event.data
            raise EngineError(
                f"{self.name}: the stream broke off", kind="unavailable", retryable=True
            )
        finally:
            await response.aclose()

    async def _post(self, body: dict[str, Any], request_id: str, traceparent: str) -> Answer:
        try:
            return await self._connection.post(
                orjson.dumps(body), request_id, traceparent=traceparent
            )
        except Refused as error:
            if error.status == 404 and body["model"] in error.complaint.message:
                self._adapters.discard(body["model"])
                raise AdapterForgotten(str(error)) from error
            raise

    # Adapters.

    async def ensure(self, name: str, path: str) -> None:
        """Load the adapter of this name, unless the server has it. Raises EngineError:
        `bad_request` for one that it refuses, `unavailable` (retryable) where it does not answer.
        """
        async with self._loading.setdefault(name, asyncio.Lock()):
            if name in self._adapters:
                return
            answer = await self._ask("load_lora_adapter", {"lora_name": name, "lora_path": path})
            if answer.status_code == 200 or b"already been loaded" in answer.content:
                self._adapters.add(name)
                return
            raise self._refusal("load", name, answer)

    async def unload(self, name: str) -> None:
        """Let the server forget it; nothing to do where it has not got it. Raises EngineError."""
        async with self._loading.setdefault(name, asyncio.Lock()):
            self._adapters.discard(name)
            answer = await self._ask("unload_lora_adapter", {"lora_name": name})
            del self._loading[name]
            if answer.status_code not in (200, 404):
                raise self._refusal("unload", name, answer)

    async def _ask(self, route: str, body: dict[str, str]) -> httpx2.Response:
        try:
            return await self._admin.post(
                self._address.url(route),
                content=orjson.dumps(body),
                headers={"Content-Type": "application/json"},
            )
        except (httpx2.HTTPError, OSError, RuntimeError) as error:
            raise EngineError(
                f"{self.name} does not answer ({type(error).__name__})",
                kind="unavailable",
                retryable=True,
            ) from error

    def _refusal(self, verb: str, name: str, answer: httpx2.Response) -> EngineError:
        quoted = complaint_in(answer.content).quoted(self.secrets)
        if answer.status_code == 404 and verb == "load" and b"adapter" not in answer.content:
            return EngineError(
                f"{self.name} takes no adapters at run time: start it with --enable-lora and "
                "VLLM_ALLOW_RUNTIME_LORA_UPDATING=True in its environment",
                kind="bad_request",
            )
        return EngineError(
            f"{self.name} does not {verb} the adapter {name!r}: {answer.status_code}, {quoted}",
            kind="bad_request",
        )

    def expect(self, *, condition: bool, what: str) -> None:
        """Raises EngineError `garbage` unless the condition holds."""
        if not condition:
            raise garbage_error(self.name, what)


def prompt_blocks(prompt: Sequence[int], adapter: str) -> list[int]:
    """One number for each beginning of the prompt of this many whole blocks; the same beginning
    under another adapter is another one."""
    blocks: list[int] = []
    value = hash(adapter)
    for start in range(0, len(prompt) - BLOCK + 1, BLOCK):
        value = hash((value, *prompt[start : start + BLOCK]))
        blocks.append(value)
    return blocks
