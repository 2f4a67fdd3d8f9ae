"""Head and body of a whole answer leave the gateway together; the head of a stream leaves alone."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from loopline.runtime.gateway.connections import WholeAnswers

HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n"
STREAM = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class Transport:
    """Notes what is written, and whether it was closed."""

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
def test_a_head_waits_for_its_body_where_a_length_is_told(
    written: tuple[bytes, ...], leaves: list[bytes]
) -> None:
    transport = Transport()
    joined = WholeAnswers(cast(asyncio.Transport, cast(Any, transport)))
    for data in written:
        joined.write(data)
    assert transport.writes == leaves


def test_a_head_whose_body_never_comes_leaves_before_the_end() -> None:
    transport = Transport()
    joined = WholeAnswers(cast(asyncio.Transport, cast(Any, transport)))
    joined.write(HEAD)
    assert not joined.is_closing()
    joined.close()
    assert (transport.writes, transport.closed) == ([HEAD], True)
