"""The routes: chat completions and embeddings with faults and latency, models, and the server's own
counters."""

from __future__ import annotations

import asyncio
import hmac
import time
from collections import deque
from collections.abc import AsyncGenerator
from typing import TypeVar

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from loopline.workers.engines.faults import FaultChooser, FaultKind, FaultPlan
from loopline.workers.scripted_api.answer import Answer, Reply, content_hash
from loopline.workers.scripted_api.counts import ServerCounts
from loopline.workers.scripted_api.embeddings import EmbeddingsRequest, embeddings_answer
from loopline.workers.scripted_api.wire import ApiError, ChatRequest


class ServerOptions(BaseModel):
    """Options of one server. Its behaviour follows from these options and the requests alone."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    host: str = "127.0.0.1"
    """Address to listen on. `require_key` is the only protection, so keep it on loopback."""
    port: int = Field(default=0, ge=0, le=65_535)
    """Port to listen on; 0 picks a free one."""
    models: tuple[str, ...] = ()
    """Model names to serve, 404 for others; none means every name."""
    require_key: str | None = Field(default=None, repr=False)
    """Answer 401 to requests without this key."""
    latency_seconds: float = Field(default=0.0, ge=0)
    """Time from the arrival of a request to its first token."""
    tokens_per_second: float | None = Field(default=None, gt=0)
    """Speed after the first token; none means all at once."""
    mistakes: dict[str, float] = Field(default_factory=dict)
    """Model name → share of sub-problems that the model gets wrong."""
    max_context: int | None = Field(default=None, ge=8)
    """Longest prompt; a longer one gets a 400 `context_length_exceeded`."""
    idempotent: bool = False
    """Answer a request that repeats an `Idempotency-Key` with the earlier answer, which is counted
    once. Otherwise the key is ignored, as most providers do."""
    requests_per_minute: int | None = Field(default=None, ge=1)
    """Maximum number of requests in any 60 seconds; further ones get a 429. Answers report the
    limit in the headers `x-ratelimit-*`."""
    faults: FaultPlan = FaultPlan()
    """Errors to inject."""


Body = TypeVar("Body", ChatRequest, EmbeddingsRequest)
MAX_BODY_BYTES = 16 * 1024 * 1024
"""Size above that of any prompt that passes admission, tools and history included."""


class ScriptedApp:
    """One server's routes and counters."""

    def __init__(self, options: ServerOptions, reply: Reply | None = None) -> None:
        self._options = options
        self._reply = reply
        self._faults = FaultChooser(options.faults)
        self.served = ServerCounts()
        self._accepted: deque[float] = deque()
        """Arrival times of the requests that were within the limit of requests per minute."""
        self._unhang = asyncio.Event()
        self.routes = Starlette(
            routes=[
                Route("/v1/chat/completions", self._chat, methods=["POST"]),
                Route("/v1/embeddings", self._embeddings, methods=["POST"]),
                Route("/v1/models", self._models),
                Route("/stats", self._stats),
            ]
        )

    def end_hanging(self) -> None:
        """Answer 503 to the requests that hang."""
        self._unhang.set()
        self._unhang = asyncio.Event()

    async def _models(self, request: Request) -> Response:
        names = self._options.models or ("scripted",)
        return JSONResponse(
            {
                "object": "list",
                "data": [
                    {"id": name, "object": "model", "created": 0, "owned_by": "scripted"}
                    for name in names
                ],
            }
        )

    async def _stats(self, request: Request) -> Response:
        listed = request.query_params.get("list") == "1"
        return JSONResponse(self.served.as_json(listed=listed))

    async def _chat(self, request: Request) -> Response:
        request_id = request.headers.get("x-client-request-id")
        key = request.headers.get("idempotency-key")
        self.served.arrived(request_id, key)
        once_for = key if self._options.idempotent else None
        streaming = False
        try:
            body = await self._read(request, ChatRequest)
            fault = self._faults.choose(content_hash(body))
            if fault is not None:
                self.served.fault(fault)
            self._refuse_beyond_rate()
            await self._refuse(fault, request)
            answer = Answer(
                body,
                mistake_rate=self._options.mistakes.get(body.model, 0.0),
                max_context=self._options.max_context,
                fault=fault,
                reply=self._reply,
            )
            await asyncio.sleep(self._options.latency_seconds)
            if body.stream:
                streaming = True
                return StreamingResponse(
                    self._stream(answer, body, fault, request_id, once_for),
                    media_type="text/event-stream",
                    headers=self._rate_headers,
                )
            return await self._whole(answer, body, fault, request_id, once_for)
        except ApiError as error:
            return JSONResponse(error.body, error.status, error.headers)
        finally:
            if not streaming:
                self.served.left()

    async def _embeddings(self, request: Request) -> Response:
        request_id = request.headers.get("x-client-request-id")
        key = request.headers.get("idempotency-key")
        self.served.arrived(request_id, key)
        try:
            body = await self._read(request, EmbeddingsRequest)
            fault = self._faults.choose(body.content_hash)
            if fault is not None:
                self.served.fault(fault)
            self._refuse_beyond_rate()
            await self._refuse(fault, request)
            await asyncio.sleep(self._options.latency_seconds)
            content = embeddings_answer(body, with_usage=fault != "missing_usage")
            if fault in ("malformed_json", "truncated_stream"):
                return Response(content[: len(content) // 2], media_type="application/json")
            if fault != "missing_usage":
                self.served.answered(
                    body.model, body.content_hash, request_id, len(body.inputs), body.usage,
                    key if self._options.idempotent else None,
                )  # fmt: skip
            return Response(content, media_type="application/json", headers=self._rate_headers)
        except ApiError as error:
            return JSONResponse(error.body, error.status, error.headers)
        finally:
            self.served.left()

    async def _read(self, request: Request, kind: type[Body]) -> Body:
        key = self._options.require_key
        sent = request.headers.get("authorization", "")
        if key is not None and not hmac.compare_digest(sent.encode(), f"Bearer {key}".encode()):
            raise ApiError(401, "invalid_api_key", "Incorrect API key provided.")
        raw = bytearray()
        async for part in request.stream():
            raw += part
            if len(raw) > MAX_BODY_BYTES:
                raise ApiError(413, "too_large", f"The body exceeds {MAX_BODY_BYTES} bytes.")
        try:
            body = kind.model_validate_json(bytes(raw))
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"]))
            raise ApiError(400, "invalid_request_error", f"{place}: {first['msg']}") from error
        if self._options.models and body.model not in self._options.models:
            raise ApiError(404, "model_not_found", f"The model {body.model!r} does not exist.")
        return body

    def _refuse_beyond_rate(self) -> None:
        limit = self._options.requests_per_minute
        if limit is None:
            return
        now = time.monotonic()
        while self._accepted and self._accepted[0] <= now - 60:
            self._accepted.popleft()
        if len(self._accepted) >= limit:
            self.served.fault("rate_limited")
            wait = f"{self._accepted[0] + 60 - now:.3f}"
            raise ApiError(
                429,
                "rate_limit_exceeded",
                f"More than {limit} requests per minute.",
                {"retry-after": wait, "x-ratelimit-limit-requests": str(limit)},
            )
        self._accepted.append(now)

    @property
    def _rate_headers(self) -> dict[str, str]:
        limit = self._options.requests_per_minute
        return {} if limit is None else {"x-ratelimit-limit-requests": str(limit)}

    async def _refuse(self, fault: FaultKind | None, request: Request) -> None:
        match fault:
            case "rate_limited":
                wait = str(self._options.faults.retry_after_seconds)
                raise ApiError(
                    429, "rate_limit_exceeded", "Too many requests.", {"retry-after": wait}
                )
            case "server_error":
                raise ApiError(500, "server_error", "The server had an error.")
            case "hang":
                await self._hang(request)
            case _:
                return

    async def _hang(self, request: Request) -> None:
        """Wait until the client gives up or `end_hanging`."""
        gone = asyncio.ensure_future(request.receive())
        ended = asyncio.ensure_future(self._unhang.wait())
        await asyncio.wait({gone, ended}, return_when=asyncio.FIRST_COMPLETED)
        for waiter in (gone, ended):
            waiter.cancel()
        await asyncio.gather(gone, ended, return_exceptions=True)
        raise ApiError(503, "unavailable", "The server could not answer.")

    async def _whole(
        self,
        answer: Answer,
        body: ChatRequest,
        fault: FaultKind | None,
        request_id: str | None,
        once_for: str | None,
    ) -> Response:
        if self._options.tokens_per_second is not None:
            await asyncio.sleep(answer.tokens / self._options.tokens_per_second)
        content = orjson.dumps(answer.whole())
        if fault == "malformed_json":
            content = b"<html>upstream closed</html>"
        elif fault == "truncated_stream":
            content = content[: len(content) // 2]
        elif fault != "missing_usage":
            self._count(answer, body, request_id, once_for)
        return Response(content, media_type="application/json", headers=self._rate_headers)

    async def _stream(
        self,
        answer: Answer,
        body: ChatRequest,
        fault: FaultKind | None,
        request_id: str | None,
        once_for: str | None,
    ) -> AsyncGenerator[bytes, None]:
        chunks = list(answer.chunks())
        broken_at = len(chunks) // 2 if fault in ("truncated_stream", "malformed_json") else -1
        try:
            for position, (tokens, chunk) in enumerate(chunks):
                if position == broken_at:
                    if fault == "malformed_json":
                        yield b"data: {not json}\n\n"
                    return
                if tokens and self._options.tokens_per_second is not None:
                    await asyncio.sleep(tokens / self._options.tokens_per_second)
                # Counted before the last chunk is sent: a client that has read it finds it in
                # /stats.
                if position + 1 == len(chunks) and fault != "missing_usage":
                    self._count(answer, body, request_id, once_for)
                yield b"data: " + orjson.dumps(chunk) + b"\n\n"
            yield b"data: [DONE]\n\n"
        finally:
            self.served.left()

    def _count(
        self, answer: Answer, body: ChatRequest, request_id: str | None, once_for: str | None
    ) -> None:
        self.served.answered(
            body.model, answer.content_hash, request_id, body.n, answer.usage, once_for
        )
