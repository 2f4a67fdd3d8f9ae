"""Server-sent events: sends each API's stream over HTTP, and ends a stream that can't continue."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing
from typing import TypeVar

from sse_starlette import EventSourceResponse

from loopline.agents.errors import AgentError
from loopline.bus import BusError
from loopline.bus.connection import OUTAGE
from loopline.bus.tasks import end
from loopline.runtime.errors import UserError
from loopline.runtime.gateway.errors import ApiError, translated, unavailable

PING_SECONDS = 15
"""Seconds between two comments on a silent stream: proxies close silent connections."""


T = TypeVar("T")


def event(data: bytes, *, id: str = "", name: str = "") -> bytes:
    """Encode one event. A client that reconnects sends the last `id` that it has."""
    head = f"id: {id}\n" if id else ""
    if name:
        head += f"event: {name}\n"
    return b"%bdata: %b\n\n" % (head.encode(), data)


def event_stream(
    events: AsyncGenerator[bytes],
    last_words: Callable[[ApiError], bytes],
    headers: Mapping[str, str] | None = None,
) -> EventSourceResponse:
    """Return the response with these events, each encoded by `event`. A stream that fails has
    already sent its status: `last_words` builds an event with the reason."""
    return EventSourceResponse(
        _until_end(events, last_words), ping=PING_SECONDS, sep="\n", headers=headers
    )


async def start_stream(items: AsyncGenerator[T], seconds: float) -> AsyncGenerator[T]:
    """Return the stream of all items after waiting at most `seconds` for the first item: an error
    before the first item is raised here."""
    first = asyncio.create_task(_first(items))
    try:
        await asyncio.wait({first}, timeout=seconds)
        if first.done():
            first.result()
    except BaseException:
        await _close(first, items)
        raise
    return _from_first(first, items)


async def _first(items: AsyncGenerator[T]) -> list[T]:
    async for item in items:
        return [item]
    return []


async def _from_first(first: asyncio.Task[list[T]], items: AsyncGenerator[T]) -> AsyncGenerator[T]:
    try:
        for item in await first:
            yield item
        async for item in items:
            yield item
    finally:
        await _close(first, items)


async def _close(first: asyncio.Task[list[T]], items: AsyncGenerator[T]) -> None:
    """Close a generator after its pending first item: a running generator can't be closed."""
    await end([first])
    await items.aclose()


async def _until_end(
    events: AsyncGenerator[bytes], last_words: Callable[[ApiError], bytes]
) -> AsyncIterator[bytes]:
    async with aclosing(events):
        try:
            async for sent in events:
                yield sent
        except ApiError as error:
            yield last_words(error)
        except OUTAGE as error:
            # The client reconnects with the last id that it has.
            yield last_words(unavailable(f"Redis does not answer: {type(error).__name__}"))
        except (AgentError, BusError, UserError) as error:
            api_error = translated(error)
            if api_error is None:
                raise
            yield last_words(api_error)
