"""One server: its routes, its adapters, its load. This module implements vLLM's interface;
`loopline.workers.engines.sglang.server` overrides the parts that differ in SGLang."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Collection, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, ClassVar, cast

import httpx2
import orjson
from pydantic import BaseModel, ConfigDict, ValidationError

from loopline.agents.records import JsonObject
from loopline.workers.engines.openai.address import Address
from loopline.workers.engines.openai.complaints import complaint_in
from loopline.workers.engines.openai.connection import Connection
from loopline.workers.engines.openai.errors import Refused
from loopline.workers.engines.openai.sse import DONE, drain_payloads, sse_events
from loopline.workers.engines.openai.transport import Answer
from loopline.workers.engines.protocol import EngineError, GenerateRequest
from loopline.workers.engines.settings import ModelSettings
from loopline.workers.engines.vllm.adapters import ServedAdapter, ServedModel, ServedWeights
from loopline.workers.engines.vllm.admin import (
    ADMIN_SECONDS,
    NO_ANSWER,
    admin_client,
    answer_of,
)
from loopline.workers.engines.vllm.upload import Uploads
from loopline.workers.engines.vllm.wire import (
    Part,
    completion_body,
    garbage_error,
    read_part,
    read_scores,
    score_body,
)
from loopline.workers.json_bytes import json_bytes

BLOCK = 64
"""Tokens per block: beginnings of prompts are compared in whole blocks."""
REMEMBERED_BLOCKS = 8192
"""Blocks of prompts that are remembered as read by a server: half a million tokens."""
_HEALTH_SECONDS = 5.0
_MOST_DOUBLINGS = 5
"""Doublings of a quarter of a second before a missing server is asked again: at most eight
seconds."""

Reader = Callable[[bytes | str], Part]
"""Reads the events of one answer, in order."""


class Card(BaseModel):
    """A model in `/v1/models`."""

    model_config = ConfigDict(extra="ignore")

    id: str
    parent: str | None = None
    max_model_len: int | None = None


class _Cards(BaseModel):
    data: list[Card]


class AdapterForgotten(EngineError):
    """The server does not have these weights: it was restarted, or another client unloaded the
    adapter."""

    kind = "unknown_adapter"
    retryable = True


class Routes(Address):
    """The addresses of a server whose completions are at `route`."""

    route: ClassVar[str] = "completions"

    def url(self, route: str = "") -> str:
        return super().url(route or self.route)

    @property
    def root(self) -> str:
        """Base URL without OpenAI's version part."""
        return self.base.removesuffix("/v1")


class Server:
    """See the module docstring. Opens nothing before the first request."""

    kind: ClassVar[str] = "vLLM"
    routes: ClassVar[type[Routes]] = Routes
    reserve: ClassVar[int] = 1
    """Context tokens that a prompt and its answer must leave free: one for the token that a pass
    over a given text has to draw."""
    counts_filters: ClassVar[bool] = True
    """Whether processed log-probabilities also include top_p and top_k."""
    processed_hint: ClassVar[str] = "start the server with --logprobs-mode processed_logprobs"
    guidance_hint: ClassVar[str] = (
        '--structured-outputs-config \'{"backend": "guidance", "disable_any_whitespace": true}\''
    )
    no_adapters_hint: ClassVar[str] = (
        "start it with --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=True in its environment"
    )
    no_sleep_hint: ClassVar[str] = (
        "start it with --enable-sleep-mode and VLLM_SERVER_DEV_MODE=1 in its environment"
    )

    def __init__(self, settings: ModelSettings, url: str, key: str) -> None:
        """Raises EngineError if the environment sets an unusable proxy or lacks a key."""
        self._address = cast(Routes, self.routes.of(url))
        self.name = f"{self.kind} at {self._address.name}"
        own_settings = settings.model_copy(update={"base_url": url})
        self._connection = Connection(own_settings, self._address, self.name, key)
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._admin = admin_client(url, headers)
        upload = settings.serving.upload
        self._uploads = None if upload is None else Uploads(upload, url)
        self.model = ""
        """The server's name for the model without an adapter."""
        self.max_context: int | None = None
        self.seeds = True
        """Whether the same seed produces the same draws."""
        self.load = 0
        """Number of completions in progress."""
        self.down_until = 0.0
        """Monotonic time in seconds until which a server that did not answer is not asked again."""
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
        if self._uploads is not None:
            await self._uploads.close()

    # Availability.

    @property
    def is_up(self) -> bool:
        return bool(self.model) and time.monotonic() >= self.down_until

    def lost(self) -> None:
        """Record that the server did not answer. Its adapters may be gone; it is asked again after
        a delay that grows each time."""
        self._failures = min(self._failures + 1, _MOST_DOUBLINGS)
        self.down_until = time.monotonic() + 0.25 * 2**self._failures
        self._adapters.clear()
        self._blocks.clear()
        self.model = ""

    async def greet(self) -> bool:
        """Whether it answers; if so, its model's name and context are stored."""
        try:
            base = await self._read_card()
        except (*NO_ANSWER, ValidationError):
            base = None
        if base is None:
            self.lost()
            return False
        self.model, self.max_context = base.id, base.max_model_len
        self._failures, self.down_until = 0, 0.0
        return True

    async def _read_card(self) -> Card | None:
        """Read the model card; None if the server lists no model of its own. Raises
        httpx2.HTTPError, ValidationError."""
        return await self._card_at("models")

    async def _card_at(self, route: str) -> Card | None:
        """Card of the model without an adapter; None if the server has none."""
        answer = await self._admin.get(self._address.url(route), timeout=_HEALTH_SECONDS)
        cards = _Cards.model_validate_json(answer.content).data
        bases = [card for card in cards if card.parent is None]
        return bases[0] if bases and answer.status_code == 200 else None

    # Completions.

    @contextmanager
    def working(self, rows: int, prompt: Sequence[int], adapter: str) -> Generator[None]:
        """Count the server as busy while it generates this many completions of this prompt."""
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
        """Number of a prompt's first blocks that it has read before."""
        for count, block in enumerate(blocks):
            if block not in self._blocks:
                return count
        return len(blocks)

    def completion_body(
        self,
        request: GenerateRequest,
        model: str,
        prompt: Sequence[int],
        *,
        limit: int,
        seed: int,
        structured: JsonObject | None,
        end_ids: Collection[int] = (),
    ) -> JsonObject:
        """The body of a request. Raises EngineError `bad_request` for an unsupported request."""
        return completion_body(
            request, model, prompt, limit=limit, seed=seed, structured=structured
        )

    def reader(self, rows: int = 1, model: str = "") -> Reader:
        """Return a reader of an answer of `model` with this many completions."""
        return partial(read_part, server=self.name)

    async def score(self, model: str, ids: Sequence[int]) -> list[float]:
        """Log-probabilities of `ids[1:]`. Raises the errors of `complete`."""
        return read_scores(await self.complete(score_body(model, ids), "score"), ids, self.name)

    async def complete(self, body: dict[str, Any], request_id: str, traceparent: str = "") -> bytes:
        """The whole answer. Raises EngineError; `AdapterForgotten` for a model that the server
        lacks."""
        response = await self._post(body, request_id, traceparent)
        try:
            return b"".join([part async for part in self._connection.parts(response)])
        finally:
            await response.aclose()

    async def stream(
        self, body: dict[str, Any], request_id: str, traceparent: str = ""
    ) -> AsyncGenerator[str]:
        """The data of each event. Raises the errors of `complete`, and EngineError for a stream
        that ends without an end mark. Closing it stops the work at the server."""
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
                json_bytes(body), request_id, traceparent=traceparent
            )
        except Refused as error:
            name = self._adapter_of(body)
            if name and self._lacks(error, name):
                self._adapters.discard(name)
                raise AdapterForgotten(str(error)) from error
            raise

    def _adapter_of(self, body: dict[str, Any]) -> str:
        """The name of the weights that a request asks for."""
        return str(body["model"])

    def _lacks(self, error: Refused, name: str) -> bool:
        """Whether the error states that the server has no weights of this name."""
        return error.status == 404 and name in error.complaint.message

    # Adapters.

    async def ensure(self, adapter: ServedAdapter) -> None:
        """Load this adapter, unless the server has it. Raises EngineError: `bad_request` if the
        server refuses it, `unavailable` (retryable) if the server does not answer."""
        name = adapter.name
        async with self._loading.setdefault(name, asyncio.Lock()):
            if name in self._adapters:
                return
            answer = await self._load(adapter)
            if not self._is_loaded(answer) and not await self._is_placed(adapter):
                # Another worker has deleted the uploaded files meanwhile.
                answer = await self._load(adapter)
            if not self._is_loaded(answer):
                raise self._refusal("load", name, answer)
            self._adapters.add(name)

    async def _load(self, adapter: ServedAdapter) -> httpx2.Response:
        path = await self.placed(adapter)
        return await self.ask(
            self.adapter_url("load_lora_adapter"), {"lora_name": adapter.name, "lora_path": path}
        )

    def _is_loaded(self, answer: httpx2.Response) -> bool:
        return answer.status_code == 200 or self._has_already(answer)

    async def unload(self, adapter: ServedAdapter) -> None:
        """Unload an adapter from the server, if it is loaded. Raises EngineError."""
        name = adapter.name
        async with self._loading.setdefault(name, asyncio.Lock()):
            self._adapters.discard(name)
            answer = await self.ask(self.adapter_url("unload_lora_adapter"), {"lora_name": name})
            self._loading.pop(name, None)  # another unload may have waited for the lock
            if answer.status_code != 200 and not self._has_not(answer):
                raise self._refusal("unload", name, answer)

    async def placed(self, weights: ServedWeights) -> str:
        """The path of these weights for the server, uploaded if there is a folder for uploads.
        Raises EngineError."""
        return weights.path if self._uploads is None else await self._uploads.place(weights)

    async def _is_placed(self, weights: ServedWeights) -> bool:
        return self._uploads is None or await self._uploads.has(weights)

    async def delete_upload(self, weights: ServedWeights) -> None:
        """Delete uploaded weights that no server needs any more. Raises EngineError."""
        if self._uploads is not None:
            await self._uploads.remove(weights)

    def adapter_url(self, route: str) -> str:
        """URL of the route that loads or unloads adapters."""
        return self._address.url(route)

    def _has_already(self, answer: httpx2.Response) -> bool:
        return b"already been loaded" in answer.content

    def _has_not(self, answer: httpx2.Response) -> bool:
        return answer.status_code == 404

    def _takes_none(self, answer: httpx2.Response) -> bool:
        """Whether the server refuses all adapters."""
        return answer.status_code == 404 and b"adapter" not in answer.content

    async def ask(
        self, url: str, body: JsonObject | None = None, *, seconds: float = ADMIN_SECONDS
    ) -> httpx2.Response:
        """Ask an administration route and return its answer, with any status. Raises EngineError
        `unavailable` (retryable) if there is none."""
        with answer_of(self.name):
            return await self._admin.post(
                url,
                content=orjson.dumps(body or {}),
                headers={"Content-Type": "application/json"},
                timeout=seconds,
            )

    def quoted(self, answer: httpx2.Response) -> str:
        """The text of a refusal, without secrets."""
        words = complaint_in(answer.content).quoted(self.secrets)
        return f"{answer.status_code}, {words}"

    def _refusal(self, verb: str, name: str, answer: httpx2.Response) -> EngineError:
        if verb == "load" and self._takes_none(answer):
            return EngineError(
                f"{self.name} does not accept adapters at run time: {self.no_adapters_hint}",
                kind="bad_request",
            )
        return EngineError(
            f"{self.name} did not {verb} the adapter {name!r}: {self.quoted(answer)}",
            kind="bad_request",
        )

    # Weights and memory.

    async def ensure_model(self, whole: ServedModel | None) -> None:
        """Check that the server has these weights, or those that it was started with. Raises
        EngineError `unavailable` (retryable) if it has others: the worker's own server is about to
        be restarted with them."""
        if whole is not None and self.model != whole.name:
            raise EngineError(
                f"{self.name} has the weights {self.model!r}, not {whole.name!r}",
                kind="unavailable",
                retryable=True,
            )

    @property
    def has_base(self) -> bool:
        """Whether it has the weights that it was started with."""
        return True

    async def sleep(self) -> None:
        """Release the GPU's memory until `wake`. Raises EngineError."""
        await self._change_memory(f"{self._address.root}/sleep?level=1&mode=wait")
        self._blocks.clear()

    async def wake(self) -> None:
        """Take the GPU's memory again. Raises EngineError."""
        await self._change_memory(f"{self._address.root}/wake_up")

    async def _change_memory(self, url: str) -> None:
        answer = await self.ask(url)
        if answer.status_code != 200:
            raise EngineError(
                f"{self.name} cannot free or reclaim its GPU memory ({self.quoted(answer)}): "
                f"{self.no_sleep_hint}",
                kind="bad_request",
            )

    def expect(self, *, condition: bool, what: str) -> None:
        """Raises EngineError `garbage` unless the condition is true."""
        if not condition:
            raise garbage_error(self.name, what, self.kind)


def prompt_blocks(prompt: Sequence[int], adapter: str) -> list[int]:
    """Hash each beginning of the prompt that consists of whole blocks; the hashes depend on the
    adapter."""
    blocks: list[int] = []
    value = hash(adapter)
    for start in range(0, len(prompt) - BLOCK + 1, BLOCK):
        value = hash((value, *prompt[start : start + BLOCK]))
        blocks.append(value)
    return blocks
