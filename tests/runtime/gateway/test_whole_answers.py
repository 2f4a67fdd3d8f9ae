"""The gateway sends the head of a whole answer with its body, and that of a stream at once."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from loopline.runtime.gateway.connections import WholeAnswers

HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n"
STREAM = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class Transport:
    """Records what is written, and whether it was closed."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.closed = False

    def write(self, data: bytes) -> None:
        self.writes.append(data)

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed


@pytest.mark.parametrize(
    ("written", "leaves"),
    [
        ((HEAD, b"ok"), [HEAD + b"ok"]),
        ((HEAD, b""), [HEAD]),
        ((CONTINUE, HEAD, b"ok"), [CONTINUE, HEAD + b"ok"]),
        ((STREAM, b"2\r\nok\r\n"), [STREAM, b"2\r\nok\r\n"]),
        ((HEAD, b"ok", HEAD, b"no"), [HEAD + b"ok", HEAD + b"no"]),
    ],
)
def test_a_head_with_a_content_length_waits_for_its_body(
    written: tuple[bytes, ...], leaves: list[bytes]
) -> None:
    transport = Transport()
    joined = WholeAnswers(cast(asyncio.Transport, cast(Any, transport)))
    for data in written:
        joined.write(data)
    assert transport.writes == leaves


def test_a_head_without_its_body_is_sent_before_the_connection_closes() -> None:
    transport = Transport()
    joined = WholeAnswers(cast(asyncio.Transport, cast(Any, transport)))
    joined.write(HEAD)
    assert not joined.is_closing()
    joined.close()
    assert (transport.writes, transport.closed) == ([HEAD], True)
