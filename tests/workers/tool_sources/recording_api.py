"""An HTTP server with configurable answers that records its requests."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

METHODS = ["GET", "PUT", "POST", "DELETE", "PATCH", "OPTIONS", "QUERY", "COPY"]


@dataclass(frozen=True)
class RecordedRequest:
    """One request."""

    method: str
    path: str
    """The path as sent, with its escapes."""
    query: str
    headers: list[tuple[str, str]]
    body: bytes

    @property
    def pairs(self) -> list[list[str]]:
        return [[*pair] for pair in parse_qsl(self.query, keep_blank_values=True)]

    @property
    def form(self) -> list[list[str]]:
        return [[*pair] for pair in parse_qsl(self.body.decode(), keep_blank_values=True)]

    def header(self, name: str) -> list[str]:
        """Return all headers with that name: there should be one."""
        return [value for key, value in self.headers if key == name.lower()]


@dataclass
class RecordingApi:
    """Answers by path: `{"status", "headers", "body" or "gzip_of"}`."""

    answers: Mapping[str, Any] = field(default_factory=dict[str, Any])
    requests: list[RecordedRequest] = field(default_factory=list[RecordedRequest])

    def app(self) -> Starlette:
        return Starlette(routes=[Route("/{rest:path}", self._answer, methods=METHODS)])

    async def _answer(self, request: Request) -> Response:
        self.requests.append(
            RecordedRequest(
                request.method,
                request.scope["raw_path"].decode(),
                request.scope["query_string"].decode(),
                [(key.decode(), value.decode()) for key, value in request.headers.raw],
                await request.body(),
            )
        )
        entry = self.answers.get(request.url.path)
        if entry is None:
            return Response("{}", media_type="application/json")
        packed = entry.get("gzip_of")
        body = gzip.compress(packed.encode()) if packed is not None else entry["body"]
        answer = Response(body, entry["status"])
        for name, value in entry["headers"].items():
            answer.headers[name] = value
        return answer
