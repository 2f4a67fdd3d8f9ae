"""Server-sent events, as the standard has them and as servers send them.

httpx2's `EventSource` reads the standard alone. Here also: events that only a line's end keeps
apart, the field `error:` that llama-server writes, a byte order mark, an answer's last event
without an empty line after it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass

from loopline.workers.engines.protocol import EngineError

MAX_EVENT_BYTES = 16 * 1024 * 1024
"""Far above any completion, far below what would fill the memory."""

END_SECONDS = 0.1
"""Time to wait for the end mark of a stream after its last event: servers send both at once."""

DONE = "[DONE]"
BOM = "\ufeff"
_BLANKS = b" \t\r\n\xef\xbb\xbf"
_HEAD_BYTES = 8
_STREAM = re.compile(rb"(data|event|id|retry|error)? ?:")


@dataclass(frozen=True)
class Event:
    """`name` is empty where the server gave none; `error` also for the field of that name."""

    name: str
    data: str


async def sse_events(parts: AsyncIterator[bytes]) -> AsyncGenerator[Event]:
    """The events of a stream. Raises EngineError for an event without an end."""
    name = ""
    data: list[str] = []
    size = 0
    async for line in sse_lines(parts):
        if not line:
            if data:
                yield Event(name, "\n".join(data))
            name, data, size = "", [], 0
            continue
        if line.startswith("{"):  # no event at all, but an answer of another kind
            yield Event("error", line)
            continue
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        match field:
            case "data":
                # Some servers leave out the empty line after an event.
                if len(data) == 1 and _is_whole(data[0]):
                    yield Event(name, data[0])
                    data, size = [], 0
                if value.strip() == DONE and not data:
                    yield Event(name, DONE)
                    continue
                data.append(value)
                size += len(value) + 1
                if size > MAX_EVENT_BYTES:
                    raise _too_long("an event's end")
            case "event":
                name = value.strip()
            case "error":
                yield Event("error", value)
            case _:  # a comment, or a field that says nothing of the content
                pass
    if data:
        yield Event(name, "\n".join(data))


def _is_whole(text: str) -> bool:
    try:
        json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return False
    return True


async def sse_lines(parts: AsyncIterator[bytes]) -> AsyncGenerator[str]:
    """Lines, which end at LF, CRLF or CR alone: `str.splitlines` would also cut at U+2028, which
    JSON allows within a string. Raises EngineError for a line without an end."""
    fragments: list[bytes] = []
    size = 0
    first = True
    after_return = False
    async for part in parts:
        # A line is given away at its CR already: the LF that belongs to it may never come.
        if after_return and part.startswith(b"\n"):
            part = part[1:]
        if part:
            after_return = part.endswith(b"\r")
        *whole, rest = part.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        for line in whole:
            text = b"".join((*fragments, line)).decode("utf-8", "replace")
            fragments, size = [], 0
            yield text.removeprefix(BOM) if first else text
            first = False
        if rest:
            fragments.append(rest)
            size += len(rest)
        if size > MAX_EVENT_BYTES:
            raise _too_long("a line's end")
    if fragments:
        text = b"".join(fragments).decode("utf-8", "replace")
        yield text.removeprefix(BOM) if first else text


def _too_long(what: str) -> EngineError:
    return EngineError(
        f"the endpoint sent more than {MAX_EVENT_BYTES} bytes without {what}", kind="garbage"
    )


def is_stream(beginning: bytes) -> bool:
    """Whether an answer that begins so is a stream of events."""
    return _STREAM.match(beginning.lstrip(_BLANKS)) is not None


async def payloads_of(parts: AsyncIterator[bytes]) -> AsyncGenerator[bytes | Event]:
    """The events of a stream, or the bytes of an answer that is none: by how it begins, since
    servers name either as the other."""
    head = b""
    async for part in parts:
        head += part
        beginning = head.lstrip(_BLANKS)
        if len(beginning) >= _HEAD_BYTES or b"\n" in beginning or b"\r" in beginning:
            break
    if is_stream(head):
        async for event in sse_events(_prepend(head, parts)):
            yield event
    else:
        yield head + b"".join([part async for part in parts])


async def one_part(whole: bytes) -> AsyncGenerator[bytes]:
    """The parts of an answer that was read in one piece."""
    yield whole


async def _prepend(head: bytes, parts: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
    yield head
    async for part in parts:
        yield part


async def drain_payloads(payloads: AsyncIterator[bytes | Event]) -> None:
    """Read what comes after the last event, which is the mark of the answer's end: a connection
    whose answer was not read to its end cannot serve another request. Whatever happens here, the
    answer is whole."""
    with contextlib.suppress(TimeoutError, EngineError):
        async with asyncio.timeout(END_SECONDS):
            async for _ in payloads:
                pass
