"""Any OpenAI-compatible endpoint: OpenAI itself, vLLM, SGLang, llama-server.

The `openai` package carries the requests; retries, deadlines and the reading of answers are
ours. Tokens are counted by the provider alone: an answer without usage is an error. What the
provider doesn't give (ids, true logprobs) stays empty, and such calls are not trainable.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from typing import Any
from urllib.parse import urlsplit

import httpx2
import openai

from agents.records import Usage
from workers.engines.in_flight import InFlight, Ticket
from workers.engines.openai.assembly import Assembly
from workers.engines.openai.errors import engine_error, quote
from workers.engines.openai.keys import key_in, what_is_wrong
from workers.engines.openai.retry import RetryPolicy, retry_after_seconds
from workers.engines.openai.wire import request_body
from workers.engines.protocol import (
    Capabilities,
    Discarded,
    EngineError,
    EngineEvent,
    EngineTotals,
    GenerateRequest,
)
from workers.engines.request_checks import refuse_unsupported
from workers.engines.settings import ModelSettings

REQUEST_ID_HEADER = "X-Client-Request-Id"
"""OpenAI's documented header for a client's own id: lets a provider's log, and the scripted
server's books, be matched with ours."""

_log = logging.getLogger(__name__)

OPENAI_URL = "https://api.openai.com/v1"
END_SECONDS = 0.1
"""For the mark of a stream's end behind its last event: servers send both at once."""
MAX_LINE_BYTES = 16 * 1024 * 1024
"""Of a stream's event: far above any completion, far below what would fill the memory."""
MAX_ANSWER_BYTES = 128 * 1024 * 1024
"""Of one answer, each token of a stream in an event of its own."""


class OpenAIEngine:
    """See the module."""

    def __init__(self, settings: ModelSettings) -> None:
        self._settings = settings
        self._endpoint = f"{settings.model} at {_safe_address(settings.base_url)}"
        self._policy = RetryPolicy(
            settings.max_attempts, settings.backoff_seconds, settings.max_backoff_seconds
        )
        self._dice = random.Random()
        self._in_flight = InFlight()
        self._slots = asyncio.Semaphore(settings.max_concurrency)
        self._client: openai.AsyncOpenAI | None = None
        self._key = ""
        self._calls = self._prompt_tokens = self._completion_tokens = 0

    @property
    def name(self) -> str:
        return "openai"

    @property
    def base(self) -> str:
        return self._settings.model

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            token_ids=self._settings.token_ids,
            logprobs=self._settings.logprobs != "none",
            streaming=True,
            tools=True,
            json_schema=self._settings.json_schema,
            seeds=False,
            score=False,
            adapters=False,
            continuation=False,
            max_context=self._settings.max_context,
        )

    async def start(self) -> None:
        """Opens no connection yet. Raises EngineError of kind `auth` if the key is missing."""
        self._key = self._read_key()
        self._client = openai.AsyncOpenAI(
            # The package insists on some key; an own server without one ignores it.
            api_key=self._key or "none",
            # Without one the package would take OPENAI_BASE_URL, and the records would say OpenAI.
            base_url=self._settings.base_url or OPENAI_URL,
            max_retries=0,
            timeout=openai.Timeout(None, connect=self._settings.connect_timeout_seconds),
        )

    async def close(self) -> None:
        """Cancels what is in work and closes every connection."""
        self._in_flight.cancel_all()
        if self._client is not None:
            await self._client.close()
            self._client = None

    async def submit(self, request: GenerateRequest) -> AsyncGenerator[EngineEvent, None]:
        """See `Engine.submit`.

        Attempts that fail before anything was yielded are repeated (429, 5xx, refused
        connections, time-outs) until the attempts or the deadline run out. A stream that breaks
        after its first text is not repeated here: the second answer could be another one.
        """
        refuse_unsupported(request, self.capabilities, self.name)
        body = request_body(request, self._settings)
        with self._in_flight.enter(request) as ticket:
            await ticket.take(self._slots)
            try:
                async with aclosing(self._attempts(request, body, ticket)) as events:
                    async for event in events:
                        yield event
            finally:
                self._slots.release()

    async def cancel(self, request_id: str) -> None:
        self._in_flight.cancel(request_id)

    async def score(self, ids: Sequence[int], adapter: str | None = None) -> list[float]:
        raise EngineError(
            "an OpenAI-compatible endpoint cannot score given tokens; use the torch engine",
            kind="bad_request",
        )

    async def load_adapter(self, name: str, path: str, version: int) -> None:
        raise EngineError(
            f"adapter {name!r}: this engine cannot load adapters into an endpoint",
            kind="unknown_adapter",
        )

    async def unload_adapter(self, name: str) -> None:
        raise EngineError(f"no adapter {name!r} is loaded", kind="unknown_adapter")

    def totals(self) -> EngineTotals:
        return EngineTotals(self._calls, self._prompt_tokens, self._completion_tokens)

    def _read_key(self) -> str:
        variable = self._settings.api_key_env
        if variable is None:
            if self._settings.base_url is not None:
                return ""
            variable = "OPENAI_API_KEY"
        key = key_in(variable)
        wrong = what_is_wrong(key) if key else "is not set"
        if wrong:
            raise EngineError(
                f"{self._endpoint}: the environment variable {variable} {wrong}; put the "
                "endpoint's API key into it",
                kind="auth",
            )
        return key

    async def _attempts(
        self, request: GenerateRequest, body: dict[str, Any], ticket: Ticket
    ) -> AsyncGenerator[EngineEvent, None]:
        failures = 0
        while True:
            yielded = False
            try:
                async with aclosing(self._attempt(request, body, ticket)) as events:
                    async for event in events:
                        # Nobody has seen anything of what was paid for in vain.
                        yielded = yielded or not isinstance(event, Discarded)
                        yield event
                return
            except openai.OpenAIError as error:
                failure = engine_error(error, self._endpoint, self._key)
                asked = _retry_after(error)
            except httpx2.HTTPError as error:
                # The package wraps these while it opens a response, not while a stream is read.
                failure = EngineError(
                    f"{self._endpoint}: the connection broke: {quote(error, self._key)}",
                    kind="unavailable",
                    retryable=True,
                )
                asked = None
            except EngineError as error:
                if not error.retryable:
                    raise
                failure, asked = error, None
            except TimeoutError:
                failure = EngineError(
                    f"{self._endpoint}: no complete answer within "
                    f"{self._settings.timeout_seconds:g} s",
                    kind="timeout",
                    retryable=True,
                )
                asked = None
            failures += 1
            wait = self._policy.wait_seconds(failures, asked, self._dice)
            left = ticket.seconds_left()
            if yielded or not failure.retryable or wait is None:
                raise failure
            if left is not None and wait >= left:
                raise EngineError(
                    f"{failure} (the next attempt would come after the request's deadline)",
                    kind=failure.kind,
                    retryable=True,
                ) from failure
            _log.warning(
                "attempt %d of %d failed, next in %.2f s: %s",
                failures, self._policy.attempts, wait, failure,
            )  # fmt: skip
            await ticket.pause(wait)

    async def _attempt(
        self, request: GenerateRequest, body: dict[str, Any], ticket: Ticket
    ) -> AsyncGenerator[EngineEvent, None]:
        assembly = Assembly(request, self._settings, self._endpoint)
        finishes_at = asyncio.get_running_loop().time() + self._settings.timeout_seconds
        try:
            if request.stream:
                async with aclosing(self._lines(request, body, ticket, finishes_at)) as lines:
                    async for line in lines:
                        for delta in assembly.add(self._read_chunk(assembly, line), streamed=True):
                            yield delta
            else:
                raw = await ticket.guard(
                    self._fetch(request, body), timeout=self._settings.timeout_seconds
                )
                assembly.add(assembly.parse(raw), streamed=False)
            completions = assembly.completions()
        except EngineError:
            if (usage := assembly.paid()) is not None:
                self._count([usage])
                yield Discarded(usage=usage)
            raise
        self._count([each.usage for each in completions])
        for completion in completions:
            yield completion

    async def _fetch(self, request: GenerateRequest, body: dict[str, Any]) -> bytes:
        response = await self._open(request, body)
        try:
            return b"".join([part async for part in bounded(response.iter_bytes())])
        finally:
            await response.close()

    async def _open(self, request: GenerateRequest, body: dict[str, Any]) -> Any:
        """A response whose head has arrived. The request is built in here, so that a
        task that is cancelled before its first step leaves nothing half begun."""
        return await self._connected.chat.completions.with_streaming_response.create(
            **body, extra_headers={REQUEST_ID_HEADER: request.id}
        ).__aenter__()

    async def _lines(
        self, request: GenerateRequest, body: dict[str, Any], ticket: Ticket, finishes_at: float
    ) -> AsyncGenerator[str, None]:
        """Payloads of the server-sent events, up to `[DONE]` or the end of the answer."""

        def left() -> float:
            return max(0.0, finishes_at - asyncio.get_running_loop().time())

        response = await ticket.guard(self._open(request, body), timeout=left())
        try:
            lines = sse_lines(bounded(response.iter_bytes()))
            while True:
                line = await ticket.guard(_next_line(lines), timeout=left())
                if line is None:
                    return
                if line.startswith("data:"):
                    data = line.removeprefix("data:").strip()
                    if data == "[DONE]":
                        await _read_out(lines)
                        return
                    yield data
        finally:
            await response.close()

    def _read_chunk(self, assembly: Assembly, line: str) -> Any:
        if line.startswith('{"error"'):
            raise EngineError(
                f"{self._endpoint} ended the stream with an error: "
                f"{quote(RuntimeError(line), self._key)}",
                kind="unavailable",
                retryable=True,
            )
        return assembly.parse(line)

    def _count(self, usages: Sequence[Usage]) -> None:
        self._calls += 1
        self._prompt_tokens += sum(each.prompt for each in usages)
        self._completion_tokens += sum(each.completion for each in usages)

    @property
    def _connected(self) -> openai.AsyncOpenAI:
        if self._client is None:
            raise EngineError("the openai engine is not started", kind="internal")
        return self._client


async def bounded(parts: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
    """The parts of one answer. Raises EngineError where they come to more than any should."""
    left = MAX_ANSWER_BYTES
    async for part in parts:
        left -= len(part)
        if left < 0:
            raise EngineError(
                f"the endpoint answered with more than {MAX_ANSWER_BYTES} bytes", kind="garbage"
            )
        yield part


async def sse_lines(parts: AsyncIterator[bytes]) -> AsyncGenerator[str]:
    """Lines of a stream of events, which end at LF or CRLF alone: `str.splitlines` would also cut
    at U+2028, which JSON allows within a string. Raises EngineError for a line without an end."""
    rest = b""
    async for part in parts:
        *whole, rest = (rest + part).split(b"\n")
        for line in whole:
            yield line.removesuffix(b"\r").decode("utf-8", "replace")
        if len(rest) > MAX_LINE_BYTES:
            raise EngineError(
                f"the endpoint sent more than {MAX_LINE_BYTES} bytes without a line's end",
                kind="garbage",
            )
    if rest:
        yield rest.decode("utf-8", "replace")


async def _read_out(lines: AsyncIterator[str]) -> None:
    """Take what stands behind the last event, which is the mark of the answer's end: a connection
    whose answer was not read to its end cannot serve another request. Whatever happens here, the
    answer is whole."""
    with contextlib.suppress(TimeoutError, httpx2.HTTPError, EngineError):
        async with asyncio.timeout(END_SECONDS):
            async for _ in lines:
                pass


async def _next_line(lines: AsyncIterator[str]) -> str | None:
    return await anext(lines, None)


def _retry_after(error: openai.OpenAIError) -> float | None:
    if isinstance(error, openai.APIStatusError):
        return retry_after_seconds(error.response.headers)
    return None


def _safe_address(base_url: str | None) -> str:
    """Host and port alone: a URL may carry a password or a key."""
    if base_url is None:
        return "OpenAI"
    parts = urlsplit(base_url)
    return f"{parts.hostname}:{parts.port}" if parts.port else str(parts.hostname)


def engine(settings: ModelSettings) -> OpenAIEngine:
    """Entry point of the factory."""
    return OpenAIEngine(settings)
