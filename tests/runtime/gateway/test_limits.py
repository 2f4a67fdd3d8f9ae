"""The cost of a hostile client is bounded."""

from __future__ import annotations

import socket
from collections.abc import Generator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

import pytest

from tests.runtime.gateway.scripted_gateway import ScriptedGateway

START = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"


@contextmanager
def connection(scripted: ScriptedGateway) -> Generator[socket.socket]:
    """A raw connection to the gateway."""
    where = urlsplit(scripted.root)
    assert where.hostname is not None
    with socket.create_connection((where.hostname, where.port or 80), timeout=30) as raw:
        yield raw


def authorized(scripted: ScriptedGateway) -> bytes:
    return START + f"Authorization: Bearer {scripted.key}\r\n".encode()


@pytest.mark.parametrize("begin", [b"", START, START + b"A: b\r\n"])
def test_a_client_that_does_not_finish_its_headers_is_disconnected(
    scripted: ScriptedGateway, begin: bytes
) -> None:
    with connection(scripted) as raw:
        raw.sendall(begin)
        assert raw.recv(1) == b""


def test_a_client_with_endless_headers_is_disconnected(scripted: ScriptedGateway) -> None:
    headers = START + 1_000 * (b"X-Filler: " + b"x" * 1_000 + b"\r\n")
    with connection(scripted) as raw:
        answer = b"cut"
        with suppress(ConnectionError):
            raw.sendall(headers)
            answer = raw.recv(1)
    assert answer in (b"", b"cut")


def test_a_huge_body_is_refused_by_its_length_before_it_is_read(scripted: ScriptedGateway) -> None:
    with connection(scripted) as raw:
        raw.sendall(authorized(scripted) + b"Content-Length: 100000000\r\n\r\n")
        assert raw.recv(64).startswith(b"HTTP/1.1 413")


def test_a_huge_body_without_a_length_is_refused_at_the_limit(scripted: ScriptedGateway) -> None:
    with connection(scripted) as raw:
        raw.sendall(authorized(scripted) + b"Transfer-Encoding: chunked\r\n\r\n")
        for _ in range(20):
            raw.sendall(b"186a0\r\n" + b"x" * 100_000 + b"\r\n")
        assert raw.recv(64).startswith(b"HTTP/1.1 413")


def test_a_body_that_does_not_arrive_in_time_is_refused(scripted: ScriptedGateway) -> None:
    with connection(scripted) as raw:
        raw.sendall(authorized(scripted) + b"Content-Length: 100\r\n\r\n{")
        assert raw.recv(64).startswith(b"HTTP/1.1 408")


def test_silent_clients_leave_room_for_others(scripted: ScriptedGateway) -> None:
    where = urlsplit(scripted.root)
    assert where.hostname is not None
    address = (where.hostname, where.port or 80)
    silent = [socket.create_connection(address, timeout=30) for _ in range(300)]
    try:
        with scripted.client() as client:
            assert client.get("/v1/models").status_code == 200
        assert all(raw.recv(1) == b"" for raw in silent)
    finally:
        for raw in silent:
            raw.close()
