"""How a stream ends that can't go on: its status has been sent, so that an event says why."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from loopline.agents.errors import UnknownName
from loopline.bus import BusUnavailable
from loopline.runtime.client.run_records import RunUnknown
from loopline.runtime.gateway.errors import ApiError
from loopline.runtime.gateway.event_stream import event, event_stream


def last_words(error: ApiError) -> bytes:
    return event(str(error.status).encode(), name="error")


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ApiError(502, "no"), b"502"),
        (RedisConnectionError("away"), b"503"),
        (BusUnavailable("away"), b"503"),
        (RunUnknown("its retention is over"), b"409"),
        (UnknownName("workflow", "x", ()), b"400"),
    ],
)
async def test_what_breaks_a_stream_is_its_last_event(error: Exception, status: bytes) -> None:
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
