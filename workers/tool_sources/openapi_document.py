"""Reads an OpenAPI document from a file or a URL, in JSON or YAML, with limits."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
from pydantic import ValidationError

from loopline.workers.bounded_child import ChildFailed, ask_child
from loopline.workers.bounded_file import FileTooLarge, read_bounded_file
from loopline.workers.tool_sources import SourceUnavailable
from loopline.workers.tool_sources.bounded_http import read_bounded
from loopline.workers.tool_sources.content_coding import BadCoding
from loopline.workers.tool_sources.openapi_child import Question, Reply
from loopline.workers.tool_sources.openapi_operation import ReadDocument
from loopline.workers.tool_sources.openapi_servers import is_url
from loopline.workers.tool_sources.settings import ToolSourceSettings

CHILD = "loopline.workers.tool_sources.openapi_child"
MAX_READ_BYTES = 16 << 20
"""Largest answer of a child; a document's catalogue is bounded anyway."""


async def read_document(
    source: str, place: str, settings: ToolSourceSettings, http: httpx.AsyncClient
) -> ReadDocument:
    """The tools of a document. Raises `SourceUnavailable` for one that can't be read."""
    limit = settings.max_document_bytes
    raw = await (
        _fetch(place, http, limit) if is_url(place) else asyncio.to_thread(_read_file, place, limit)
    )
    question = Question(
        source=source,
        place=place,
        base_url=settings.base_url,
        allow=settings.allow,
        headers=frozenset(name.lower() for name in settings.headers_env),
        query=frozenset(settings.query_env),
        document_bytes=len(raw),
        seconds=settings.connect_seconds,
    )
    payload = question.model_dump_json().encode() + b"\n" + raw
    try:
        answer = await ask_child(CHILD, payload, max_answer_bytes=MAX_READ_BYTES)
        reply = Reply.model_validate_json(answer)
    except (ChildFailed, ValidationError) as error:
        raise SourceUnavailable(f"{place}: {str(error)[:300]}") from error
    if reply.document is None:
        raise SourceUnavailable(reply.unavailable or f"{place}: its parser returned nothing")
    return reply.document


async def _fetch(url: str, http: httpx.AsyncClient, limit: int) -> bytes:
    try:
        answer = await read_bounded(http, http.build_request("GET", url), limit)
    except (httpx.HTTPError, httpx.InvalidURL, BadCoding) as error:
        raise SourceUnavailable(f"{url}: {type(error).__name__}: {error}") from error
    if 300 <= answer.status < 400:
        to = answer.headers.get("location", "nowhere")[:200]
        raise SourceUnavailable(f"{url}: redirects ({answer.status}) to {to}; use that address")
    if answer.status != 200:
        raise SourceUnavailable(f"{url}: answered {answer.status} instead of a document")
    if answer.cut:
        raise _too_large(url, limit)
    return answer.body


def _read_file(place: str, limit: int) -> bytes:
    path = Path(place).expanduser()
    try:
        return read_bounded_file(path, limit)
    except OSError as error:
        raise SourceUnavailable(f"{path}: {error.strerror}") from error
    except FileTooLarge as error:
        raise _too_large(str(path), limit) from error


def _too_large(place: str, limit: int) -> SourceUnavailable:
    return SourceUnavailable(f"{place}: more than {limit} bytes; raise max_document_bytes")
