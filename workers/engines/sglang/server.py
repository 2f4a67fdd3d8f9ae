"""One SGLang server: the parts of its interface that differ from vLLM's.

Requests go to `/generate`, and administration to `/load_lora_adapter`, `/update_weights_from_disk`,
`/release_memory_occupation`. A request whose connection closes is also aborted by its id, because
SGLang checks for closed connections only now and then.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import aclosing
from typing import Any, ClassVar

import httpx2
import structlog
from pydantic import BaseModel, ConfigDict

from loopline.agents.records import JsonObject
from loopline.bus.tasks import end
from loopline.workers.engines.openai.errors import Refused
from loopline.workers.engines.protocol import EngineError, GenerateRequest
from loopline.workers.engines.settings import ModelSettings
from loopline.workers.engines.sglang.wire import (
    AnswerReader,
    generate_body,
    read_scores,
    score_body,
)
from loopline.workers.engines.vllm.adapters import ServedModel
from loopline.workers.engines.vllm.server import AdapterForgotten, Card, Reader, Routes, Server
from loopline.workers.engines.vllm.wire import Part

log = structlog.get_logger("loopline.workers.engines.sglang")

BASE_VERSION = "default"
"""SGLang's name for the weights that it was started with."""
_OURS = "@"
"""Marks the version names of weights that were published from here."""
_INFO_SECONDS = 10.0


class _ModelInfo(BaseModel):
    model_config = ConfigDict(extra="ignore")

    model_path: str = ""
    weight_version: str | None = None


class _ServerInfo(BaseModel):
    model_config = ConfigDict(extra="ignore")

    enable_deterministic_inference: bool = False


class _Routes(Routes):
    route: ClassVar[str] = "generate"

    def url(self, route: str = "") -> str:
        """URL of a route next to `/v1`, OpenAI's interface."""
        query = f"?{self.query}" if self.query else ""
        return f"{self.root}/{route or self.route}{query}"


class SglangServer(Server):
    """See the module docstring."""

    kind: ClassVar[str] = "SGLang"
    routes: ClassVar[type[Routes]] = _Routes
    reserve: ClassVar[int] = 8
    """Context tokens that SGLang's scheduler does not use."""
    counts_filters: ClassVar[bool] = False
    processed_hint: ClassVar[str] = "start the server without SGLANG_RETURN_ORIGINAL_LOGPROB"
    guidance_hint: ClassVar[str] = (
        "--grammar-backend llguidance --constrained-json-disable-any-whitespace"
    )
    no_adapters_hint: ClassVar[str] = (
        "start it with --enable-lora, --max-lora-rank and --lora-target-modules all"
    )
    no_sleep_hint: ClassVar[str] = "start it with --enable-memory-saver"

    def __init__(self, settings: ModelSettings, url: str, key: str) -> None:
        super().__init__(settings, url, key)
        self._load_seconds = settings.serving.start_seconds
        self._base_path = ""
        """Path of the weights that the server was started with."""
        self._weights: str | None = None
        """Version of the weights that the server currently has."""
        self._exchanging = asyncio.Lock()
        self._aborting: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        await end(self._aborting)
        await super().close()

    # Availability.

    async def _read_card(self) -> Card | None:
        card = await self._card_at("v1/models")
        if card is None:
            return None
        model = _ModelInfo.model_validate_json(await self._info("model_info", "get_model_info"))
        self._weights = model.weight_version
        if self.has_base:
            self._base_path = model.model_path
        server = _ServerInfo.model_validate_json(await self._info("server_info", "get_server_info"))
        self.seeds = server.enable_deterministic_inference
        return card

    async def _info(self, *routes: str) -> bytes:
        """The answer of the first of these routes that the server has (names differ by release).
        Raises httpx2.HTTPError."""
        answer = httpx2.Response(404)
        for route in routes:
            answer = await self._admin.get(self._address.url(route), timeout=_INFO_SECONDS)
            if answer.status_code == 200:
                return answer.content
        raise httpx2.HTTPError(f"{routes[-1]} answered {answer.status_code}")

    # Completions.

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
        return generate_body(
            request, prompt, request_id=f"{request.id}-{secrets.token_hex(4)}",
            adapter=self._adapter(model), limit=limit, seed=seed, structured=structured,
            end_ids=end_ids,
        )  # fmt: skip

    def _adapter(self, model: str) -> str | None:
        return None if model == self.model else model

    def reader(self, rows: int = 1, model: str = "") -> Reader:
        read = AnswerReader(self.name, rows, weights=self._weights, secrets=self.secrets)

        def read_part(raw: bytes | str) -> Part:
            try:
                return read(raw)
            except Refused as error:
                # A stream gets status 200 before the server checks the request.
                if model and self._lacks(error, model):
                    self._adapters.discard(model)
                    raise AdapterForgotten(str(error)) from error
                raise

        return read_part

    async def score(self, model: str, ids: Sequence[int]) -> list[float]:
        body = score_body(ids, f"score-{secrets.token_hex(8)}", self._adapter(model))
        return read_scores(await self.complete(body, "score"), ids, self.name)

    async def complete(self, body: dict[str, Any], request_id: str, traceparent: str = "") -> bytes:
        ended = False
        try:
            answer = await super().complete(body, request_id, traceparent)
            ended = True
            return answer
        finally:
            if not ended:
                self._abort_soon(body)

    async def stream(
        self, body: dict[str, Any], request_id: str, traceparent: str = ""
    ) -> AsyncGenerator[str]:
        ended = False
        try:
            async with aclosing(super().stream(body, request_id, traceparent)) as events:
                async for event in events:
                    yield event
            ended = True
        finally:
            if not ended:
                self._abort_soon(body)

    def _abort_soon(self, body: dict[str, Any]) -> None:
        task = asyncio.create_task(self._abort(body["rid"]))
        self._aborting.add(task)
        task.add_done_callback(self._aborting.discard)

    async def _abort(self, rid: str | list[str]) -> None:
        """Abort requests. The server silently ignores those that have already finished."""
        try:
            for name in [rid] if isinstance(rid, str) else rid:
                await self.ask(self._address.url("abort_request"), {"rid": name})
        except EngineError as error:
            log.debug("not aborted", server=self.name, why=str(error))

    def _adapter_of(self, body: dict[str, Any]) -> str:
        path = body.get("lora_path") or ""
        return path if isinstance(path, str) else path[0]

    def _lacks(self, error: Refused, name: str) -> bool:
        words = error.complaint.message
        return error.status == 400 and "not loaded" in words and name in words

    # Adapters.

    def _has_already(self, answer: httpx2.Response) -> bool:
        return b"already exists" in answer.content or b"already loaded" in answer.content

    def _has_not(self, answer: httpx2.Response) -> bool:
        return b"does not exist" in answer.content

    def _takes_none(self, answer: httpx2.Response) -> bool:
        return b"LoRA is not enabled" in answer.content

    # Weights and memory.

    @property
    def has_base(self) -> bool:
        return _OURS not in (self._weights or BASE_VERSION)

    async def ensure_model(self, whole: ServedModel | None) -> None:
        """Exchange the weights in place, unless the server already has these. Requests in progress
        finish first. Raises EngineError: `bad_request` for weights that the server refuses."""
        async with self._exchanging:
            if self.has_base if whole is None else self._weights == whole.name:
                return
            if whole is not None and self._weights is None:
                raise EngineError(
                    f"{self.name} does not report its weights (weight_version): whole models "
                    "can't be published to this release of SGLang",
                    kind="bad_request",
                )
            version = BASE_VERSION if whole is None else whole.name
            path = self._base_path if whole is None else await self.placed(whole)
            if not path:
                raise EngineError(
                    f"{self.name} has the weights {self._weights!r}, and the path of its "
                    "original weights is unknown: restart it",
                    kind="bad_request",
                )
            answer = await self.ask(
                self._address.url("update_weights_from_disk"),
                {"model_path": path, "weight_version": version, "flush_cache": True},
                seconds=self._load_seconds,
            )
            if answer.status_code != 200:
                raise EngineError(
                    f"{self.name} refused the weights {version!r}: {self.quoted(answer)}",
                    kind="bad_request",
                )
            self._weights = version
            self._blocks.clear()

    async def sleep(self) -> None:
        await self._change_memory(self._address.url("release_memory_occupation"))
        self._blocks.clear()

    async def wake(self) -> None:
        await self._change_memory(self._address.url("resume_memory_occupation"))
