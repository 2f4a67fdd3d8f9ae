"""Server-sent events, as the standard defines them and as servers send them.

httpx2's `EventSource` reads only standard events. This module also reads events that are separated
by a single line end, the field `error:` that llama-server writes, a byte order mark, and a last
event without an empty line after it.
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
"""Far larger than any completion, far smaller than the memory."""

END_SECONDS = 0.1
"""Wait for a stream's end mark after its last event: servers send both at once."""

DONE = "[DONE]"
BOM = "\ufeff"
_BLANKS = b" \t\r\n\xef\xbb\xbf"
_HEAD_BYTES = 8
_STREAM = re.compile(rb"(data|event|id|retry|error)? ?:")


@dataclass(frozen=True)
class Event:
    """`name` is empty if the server sent none; it is `error` also for the field of that name."""

    name: str
    data: str


async def sse_events(parts: AsyncIterator[bytes]) -> AsyncGenerator[Event]:
    """The events of a stream. Raises EngineError for an event that never ends."""
    name = ""
    data: list[str] = []
    size = 0
    bare: list[str] = []
    async for line in sse_lines(parts):
        # Not an event, but an answer in another format, which may extend over several lines.
        if line and (bare or line.startswith("{") or line.rstrip() in ("[", "[{")):
            bare.append(line)
            size += len(line) + 1
            if size > MAX_EVENT_BYTES:
                raise _too_long("the end of an event")
            if line.startswith(("}", "]")) or (len(bare) == 1 and _is_whole(line)):
                yield Event("error", "\n".join(bare))
                bare, size = [], 0
            continue
        if not line:
            if bare:
                yield Event("error", "\n".join(bare))
                bare = []
            if data:
                yield Event(name, "\n".join(data))
            name, data, size = "", [], 0
            continue
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        match field:
            case "data":
                # Some servers omit the empty line after an event.
                if len(data) == 1 and _is_whole(data[0]):
                    yield Event(name, data[0])
                    data, size = [], 0
                if value.strip() == DONE and not data:
                    yield Event(name, DONE)
                    continue
                data.append(value)
                size += len(value) + 1
                if size > MAX_EVENT_BYTES:
                    raise _too_long("the end of an event")
            case "event":
                name = value.strip()
            case "error":
                yield Event("error", value)
            case _:  # a comment, or a field that is not content
                pass
    if bare:
        yield Event("error", "\n".join(bare))
    if data:
        yield Event(name, "\n".join(data))


def _is_whole(text: str) -> bool:
    try:
        json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return False
    return True


async def sse_lines(parts: AsyncIterator[bytes]) -> AsyncGenerator[str]:
    """Lines, which end only at LF, CRLF or CR: `str.splitlines` would also split at U+2028, which
    JSON allows within a string. Raises EngineError for a line that never ends."""
    fragments: list[bytes] = []
    size = 0
    first = True
    after_return = False
    async for part in parts:
        # A line is complete at its CR: the LF that belongs to it may never come.
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
            raise _too_long("the end of a line")
    if fragments:
        text = b"".join(fragments).decode("utf-8", "replace")
        yield text.removeprefix(BOM) if first else text


def _too_long(what: str) -> EngineError:
    return EngineError(
        f"the endpoint sent more than {MAX_EVENT_BYTES} bytes without {what}", kind="garbage"
    )


def is_stream(beginning: bytes) -> bool:
    """Whether an answer with this beginning is a stream of events."""
    return _STREAM.match(beginning.lstrip(_BLANKS)) is not None


async def payloads_of(parts: AsyncIterator[bytes]) -> AsyncGenerator[bytes | Event]:
    """The events of a stream, or the bytes of any other answer. The first bytes decide, since
    servers label either one as the other."""
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
    """Read the rest after the last event, up to the end mark of the answer: a connection can serve
    another request only if the answer was read to its end. A failure here does not matter, since
    the answer is complete."""
    with contextlib.suppress(TimeoutError, EngineError):
        async with asyncio.timeout(END_SECONDS):
            async for _ in payloads:
                pass
