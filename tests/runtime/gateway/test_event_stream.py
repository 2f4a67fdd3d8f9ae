"""A stream that fails after its status was sent reports the error as an event."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from loopline.agents.errors import UnknownName
from loopline.bus import BusUnavailable
from loopline.runtime.client.run_records import RunUnknown
from loopline.runtime.gateway.errors import ApiError
from loopline.runtime.gateway.event_stream import event, event_stream, start_stream


def last_words(error: ApiError) -> bytes:
    return event(str(error.status).encode(), name="error")


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ApiError(502, "no"), b"502"),
        (RedisConnectionError("away"), b"503"),
        (BusUnavailable("away"), b"503"),
        (RunUnknown("its retention is over"), b"404"),
        (UnknownName("workflow", "x", ()), b"400"),
    ],
)
async def test_an_error_that_breaks_a_stream_is_its_last_event(
    error: Exception, status: bytes
) -> None:
    closed: list[bool] = []

    async def events() -> AsyncGenerator[bytes]:
        try:
            yield event(b"1", id="a")
            raise error
        finally:
            closed.append(True)

    response = event_stream(events(), last_words)
    sent = [part async for part in response.body_iterator]
    assert sent == [b"id: a\ndata: 1\n\n", b"event: error\ndata: " + status + b"\n\n"]
    assert closed == [True]


async def numbers(
    closed: list[bool], released: asyncio.Event, *, count: int
) -> AsyncGenerator[int]:
    try:
        await released.wait()
        for number in range(count):
            yield number
    finally:
        closed.append(True)


@pytest.mark.parametrize("count", [0, 1, 3])
@pytest.mark.parametrize("seconds", [0.0, 5.0])
async def test_a_started_stream_yields_all_items(count: int, seconds: float) -> None:
    closed, released = list[bool](), asyncio.Event()
    if seconds:
        released.set()
    stream = await start_stream(numbers(closed, released, count=count), seconds)
    released.set()
    assert [number async for number in stream] == list(range(count))
    assert closed == [True]


async def test_an_error_at_the_first_item_is_raised_at_the_start() -> None:
    async def refuses() -> AsyncGenerator[int]:
        raise ApiError(502, "no")
        yield 1

    with pytest.raises(ApiError, match="no"):
        await start_stream(refuses(), 5.0)


@pytest.mark.parametrize("seconds", [60.0, 0.0])
async def test_a_client_that_leaves_before_the_first_item_closes_the_stream(seconds: float) -> None:
    closed, begun = list[bool](), asyncio.Event()

    async def silent() -> AsyncGenerator[int]:
        try:
            begun.set()
            await asyncio.Event().wait()
            yield 1
        finally:
            closed.append(True)

    async def read() -> None:
        async for _ in await start_stream(silent(), seconds):
            pass

    reading = asyncio.create_task(read())
    await begun.wait()
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert closed == [True]
