"""The child that parses an OpenAPI document. It reads one line with the request, then the document,
and writes a `ReadDocument`, or the reason why there is none, as JSON."""

from __future__ import annotations

import sys

from pydantic import BaseModel

from loopline.agents.records import JsonObject
from loopline.workers.self_limits import limit_self
from loopline.workers.tool_sources import SourceUnavailable
from loopline.workers.tool_sources.catalogue import catalogue_of
from loopline.workers.tool_sources.document_text import BadDocument, as_written, read_text
from loopline.workers.tool_sources.openapi_operation import ReadDocument
from loopline.workers.tool_sources.openapi_operations import OperationFilter, operations_of
from loopline.workers.tool_sources.openapi_servers import base_url_of

MEMORY_BYTES = 1 << 30
"""Base memory limit; `MEMORY_TIMES` the document's size is added."""
MEMORY_TIMES = 64


class Question(BaseModel):
    """A request to parse a document."""

    source: str
    place: str
    """Address of the document, for messages and for servers that are given as a path."""
    base_url: str | None
    allow: tuple[str, ...]
    headers: frozenset[str]
    query: frozenset[str]
    document_bytes: int
    seconds: float


class Reply(BaseModel):
    """The result: one of the two."""

    document: ReadDocument | None = None
    unavailable: str | None = None


def read_document(question: Question, raw: bytes) -> ReadDocument:
    """Parse a document. Raises `SourceUnavailable`."""
    try:
        document = read_text(raw)
    except BadDocument as error:
        raise SourceUnavailable(
            f"{question.place}: not a JSON or YAML object: {str(error)[:300]}"
        ) from error
    if not isinstance(document, dict):
        raise SourceUnavailable(f"{question.place}: not a JSON or YAML object")
    _check_version(question.place, document)
    base_url = base_url_of(document, question.place, question.base_url)
    wanted = OperationFilter(question.allow, question.headers, question.query)
    operations = operations_of(document, base_url, wanted)
    catalogue = catalogue_of(question.source, operations.listed, question.allow)
    names = set(catalogue.own_names.values())
    return ReadDocument(
        base_url=base_url,
        specs=catalogue.specs,
        own_names=catalogue.own_names,
        left_out=(*operations.left_out, *catalogue.left_out),
        operations={
            name: operation for name, operation in operations.by_name.items() if name in names
        },
    )


def _check_version(place: str, document: JsonObject) -> None:
    version = document.get("openapi")
    if isinstance(version, str | float) and str(as_written(version)).startswith("3."):
        return
    if "swagger" in document:
        version_text = "Swagger 2 (convert it to OpenAPI 3)"
    elif isinstance(version, str | int | float):
        version_text = f"`openapi: {str(version)[:50]}`"
    else:
        version_text = "no version"
    raise SourceUnavailable(f"{place}: needs `openapi: 3.…`, found {version_text}")


def answer_question(question: Question, raw: bytes) -> bytes:
    """The `Reply` to a request, as JSON."""
    try:
        reply = Reply(document=read_document(question, raw))
    except SourceUnavailable as error:
        reply = Reply(unavailable=str(error))
    except RecursionError:
        reply = Reply(unavailable=f"{question.place}: its parts are nested too deeply")
    return reply.model_dump_json().encode(errors="replace")


def main() -> None:
    """Answer one request."""
    question = Question.model_validate_json(sys.stdin.buffer.readline())
    limit_self(
        memory_bytes=MEMORY_BYTES + MEMORY_TIMES * question.document_bytes,
        cpu_seconds=question.seconds,
    )
    sys.stdout.buffer.write(answer_question(question, sys.stdin.buffer.read()))


if __name__ == "__main__":
    main()
