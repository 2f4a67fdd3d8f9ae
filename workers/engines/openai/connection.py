"""The HTTP side of an endpoint: sends a request, returns the answer's bytes, raises typed errors.

It does not use the `openai` package, which reads an address, an organization, a project, headers
and a log level from the environment, sends them to any server that `base_url` specifies, and
follows every redirect.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

from loopline.bus import TRACEPARENT_HEADER
from loopline.workers.engines.openai.address import Address, redirect_target, same_origin
from loopline.workers.engines.openai.complaints import MAX_BODY_BYTES, complaint_in, quote
from loopline.workers.engines.openai.errors import refusal_of
from loopline.workers.engines.openai.proxy import ProxyUnusable, proxy_for
from loopline.workers.engines.openai.retry import retry_after_seconds
from loopline.workers.engines.openai.transport import Answer, NetworkError, Ready, transport_to
from loopline.workers.engines.protocol import EngineError
from loopline.workers.engines.settings import ModelSettings

IDEMPOTENCY_HEADER = "Idempotency-Key"
"""Header with a key for each attempt; every worker that makes the attempt sends the same key. An
endpoint that supports such keys bills it once."""
REQUEST_ID_HEADER = "X-Client-Request-Id"
"""OpenAI's documented header for a client's own id. It connects a provider's log, and the scripted
server's books, to ours."""

MAX_ANSWER_BYTES = 128 * 1024 * 1024
"""Limit of one answer, enough for a stream with a separate event for each token."""
MAX_WHOLE_BYTES = 2**20
"""Limit of an answer that is read in one piece."""
MAX_REDIRECTS = 3
_OPENAI_HEADERS = {
    "OpenAI-Organization": "OPENAI_ORG_ID",
    "OpenAI-Project": "OPENAI_PROJECT_ID",
}
"""Headers that identify the payer, with the environment variables of their values; sent only to
OpenAI itself."""


@dataclass(frozen=True)
class Letter:
    """A request to the endpoint."""

    body: bytes
    headers: Callable[[], Mapping[str, str]]
    ready: Ready | None = None
    """The prepared request, ready to be sent."""


class Connection:
    """Connection to one endpoint; opens nothing before the first request.

    Raises EngineError of kind `bad_request` if the environment sets an unusable proxy.
    """

    def __init__(self, settings: ModelSettings, address: Address, endpoint: str, key: str) -> None:
        self._url = address.url("embeddings") if settings.embeddings else address.url()
        self._endpoint = endpoint
        self._key_sent = bool(key)
        self.secrets = (key, *address.secrets)
        """Texts that no error may show."""
        headers = {"Content-Type": "application/json"}
        if key:
            headers["Authorization"] = f"Bearer {key}"
        if settings.base_url is None:
            header_values = {name: os.environ.get(var, "") for name, var in _OPENAI_HEADERS.items()}
            headers |= {name: value for name, value in header_values.items() if value}
        try:
            self._proxy = proxy_for(self._url)
        except ProxyUnusable as error:
            raise EngineError(f"{endpoint}: {error}", kind="bad_request") from error
        self._transport = transport_to(
            self._url,
            None if self._proxy is None else self._proxy.url,
            headers,
            settings.connect_timeout_seconds,
        )

    async def close(self) -> None:
        await self._transport.aclose()

    async def post(
        self, body: bytes, request_id: str, idempotency_key: str = "", traceparent: str = ""
    ) -> Answer:
        """Send a request and return the answer once its head has arrived; the caller closes it.

        Raises `Refused` for an error status, EngineError for no answer or a redirect to another
        origin.
        """
        headers = _headers(request_id, idempotency_key, traceparent)
        return await self.send(Letter(body, lambda: headers))

    @contextmanager
    def preparing(
        self, body: bytes, request_id: str, idempotency_key: Callable[[], str], traceparent: str
    ) -> Generator[Letter]:
        """Prepare a request, with its key, while the block runs. If the block does not send it, it
        is dropped."""

        @cache
        def headers() -> Mapping[str, str]:
            return _headers(request_id, idempotency_key(), traceparent)

        ready = self._transport.prepare(self._url, body, headers)
        try:
            yield Letter(body, headers, ready)
        finally:
            ready.drop()

    async def send(self, letter: Letter) -> Answer:
        """Send a letter once. Returns and raises the same as `post`."""
        url, ready = self._url, letter.ready
        for _ in range(MAX_REDIRECTS + 1):
            with self._typed_errors("no connection"):
                if ready is None:
                    answer = await self._transport.post(url, letter.body, letter.headers())
                else:
                    answer = await ready.leave()
            ready = None
            if answer.status < 300:
                return answer
            try:
                if answer.status >= 400:
                    raise await self._refusal(answer)
                url = self._target(answer, url)
            finally:
                await answer.aclose()
        raise EngineError(
            f"{self._endpoint} redirects more than {MAX_REDIRECTS} times; set base_url to the "
            "address that answers",
            kind="bad_request",
        )

    async def parts(self, answer: Answer) -> AsyncGenerator[bytes]:
        """The body's bytes as they arrive. Raises EngineError if the body is too large or the
        connection breaks."""
        with self._typed_errors("the connection broke"):
            remaining = MAX_ANSWER_BYTES
            async for part in answer.parts():
                remaining -= len(part)
                if remaining < 0:
                    raise EngineError(
                        f"{self._endpoint} answered with more than {MAX_ANSWER_BYTES} bytes",
                        kind="garbage",
                    )
                yield part

    async def whole(self, answer: Answer) -> bytes | None:
        """The whole body if it is short JSON, which avoids a stream's generators; otherwise None.
        Raises EngineError if the connection breaks."""
        with self._typed_errors("the connection broke"):
            return await answer.whole(min(MAX_WHOLE_BYTES, MAX_ANSWER_BYTES))

    async def _refusal(self, answer: Answer) -> EngineError:
        body = bytearray()
        with self._typed_errors("the connection broke"):
            async for part in answer.parts():
                body += part
                if len(body) >= MAX_BODY_BYTES:
                    break
        error = refusal_of(
            complaint_in(bytes(body)),
            answer.status,
            self._endpoint,
            self.secrets,
            self._key_sent,
        )
        stated = retry_after_seconds(answer.headers)
        if stated is not None:
            error.retry_after = stated
        return error

    def _target(self, answer: Answer, url: str) -> str:
        """Return the address that a redirect leads to. Only 307 and 308 keep the request unchanged,
        and credentials never leave the origin of the base_url. Raises EngineError for any other
        redirect."""
        status = answer.status
        target = redirect_target(url, answer.headers.get("location", ""))
        if target is not None and same_origin(url, target) and status in (307, 308):
            return target
        where = "nowhere"
        if target is not None:
            scheme = target.split(":", 1)[0]
            where = quote(f"{scheme}://{Address.of(target).name}", self.secrets)
        raise EngineError(
            f"{self._endpoint} answered {status}, which leads to {where}: a request and its key "
            "are sent only to the base_url; if the endpoint has moved, set base_url to its new "
            "address",
            kind="bad_request",
        )

    @contextmanager
    def _typed_errors(self, what: str) -> Generator[None]:
        """Raise network failures as typed errors."""
        try:
            yield
        except NetworkError as error:
            through = ""
            if self._proxy is not None:
                through = f" through the proxy {self._proxy.name} of {self._proxy.variable}"
            hint = "" if what.startswith("the") else "; is the address right and the server up?"
            message = quote(str(error), self.secrets)
            raise EngineError(
                f"{self._endpoint}: {what}{through} ({message}){hint}",
                kind="timeout" if error.timed_out else "unavailable",
                retryable=True,
            ) from error


def _headers(request_id: str, idempotency_key: str, traceparent: str) -> dict[str, str]:
    headers = {REQUEST_ID_HEADER: request_id}
    if idempotency_key:
        headers[IDEMPOTENCY_HEADER] = idempotency_key
    if traceparent:
        headers[TRACEPARENT_HEADER] = traceparent
    return headers
