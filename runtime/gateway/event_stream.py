"""Server-sent events: how each API's stream goes over HTTP, and how it ends when it can't go on."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing

from sse_starlette import EventSourceResponse

from loopline.agents.errors import AgentError
from loopline.bus import BusError
from loopline.bus.connection import OUTAGE
from loopline.runtime.errors import UserError
from loopline.runtime.gateway.errors import ApiError, translated, unavailable

PING_SECONDS = 15
"""Between two comments of a silent stream: proxies end connections that say nothing."""


def event(data: bytes, *, id: str = "", name: str = "") -> bytes:
    """One event as it is sent. A client that comes back names the last `id` that it has."""
    head = f"id: {id}\n" if id else ""
    if name:
        head += f"event: {name}\n"
    return b"%bdata: %b\n\n" % (head.encode(), data)


def event_stream(
    events: AsyncGenerator[bytes],
    last_words: Callable[[ApiError], bytes],
    headers: Mapping[str, str] | None = None,
) -> EventSourceResponse:
    """The response whose events these are, each as `event` writes it. A stream that fails has sent
    its status already: `last_words` make the event that says why."""
    return EventSourceResponse(
        _until_end(events, last_words), ping=PING_SECONDS, sep="\n", headers=headers
    )


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
            # The client comes back with the last id that it has.
            yield last_words(unavailable(f"Redis does not answer: {type(error).__name__}"))
        except (AgentError, BusError, UserError) as error:
            api_error = translated(error)
            if api_error is None:
                raise
            yield last_words(api_error)
