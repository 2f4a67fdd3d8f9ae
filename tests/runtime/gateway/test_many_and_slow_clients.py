"""Slow, huge and very many clients cost the gateway a bounded amount of memory, and others are
answered meanwhile."""

from __future__ import annotations

import json
import resource
import socket
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

import psutil
import pytest

from tests.runtime.gateway.scripted_gateway import ScriptedGateway, serving

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

IDLE = 10_000
SPARE_FILES = 500
MAX_IDLE_BYTES = 32_000
"""Bytes that one idle connection may cost."""
MAX_GROWTH = 32_000_000
"""Bytes that clients may cost that read slowly or send too much."""
ANSWER_SECONDS = 10.0
"""Limit for another client's request on a busy machine."""

HOLD = """
import resource, socket, sys
host, port, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
held = [socket.create_connection((host, port), timeout=60) for _ in range(count)]
print(len(held), flush=True)
sys.stdin.read()
"""
"""Opens connections, and holds them until its standard input ends."""


@pytest.fixture(scope="module")
def gateway() -> Iterator[ScriptedGateway]:
    """One gateway with its default timeouts."""
    with serving() as deployment:
        yield deployment


def process_of(gateway: ScriptedGateway) -> psutil.Process:
    [worker] = gateway.workers("gateway")
    return psutil.Process(worker["pid"])


def address(gateway: ScriptedGateway) -> tuple[str, int]:
    where = urlsplit(gateway.root)
    assert where.hostname is not None
    return where.hostname, where.port or 80


@contextmanager
def connection(gateway: ScriptedGateway) -> Generator[socket.socket]:
    with socket.create_connection(address(gateway), timeout=30) as raw:
        yield raw


def require_answer(gateway: ScriptedGateway) -> None:
    """Check that another client is answered."""
    with gateway.client() as client:
        assert client.get("/v1/models", timeout=ANSWER_SECONDS).status_code == 200


def test_a_client_that_reads_byte_by_byte_does_not_fill_the_memory_of_the_gateway(
    gateway: ScriptedGateway,
) -> None:
    """The client sends ten thousand requests at once and reads almost nothing of the answers. Only
    the sockets' buffers may hold unread ones."""
    require_answer(gateway)
    process = process_of(gateway)
    before = process.memory_info().rss
    request = f"GET /v1/models HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {gateway.key}\r\n\r\n"
    with connection(gateway) as raw:
        raw.settimeout(3)
        with suppress(TimeoutError, ConnectionError):
            raw.sendall(request.encode() * 10_000)
        for _ in range(5):
            assert raw.recv(1)
            require_answer(gateway)
        assert process.memory_info().rss - before < MAX_GROWTH


def test_a_body_of_a_hundred_megabytes_is_refused_without_being_buffered(
    gateway: ScriptedGateway,
) -> None:
    require_answer(gateway)
    process = process_of(gateway)
    before = process.memory_info().rss
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {gateway.key}\r\n"
    )
    piece = b"f4240\r\n" + b"x" * 1_000_000 + b"\r\n"
    for length in ("Transfer-Encoding: chunked", "Content-Length: 100000000"):
        with connection(gateway) as raw:
            raw.sendall(f"{head}{length}\r\n\r\n".encode())
            with suppress(ConnectionError, TimeoutError):  # the gateway does not read it all
                for _ in range(100):
                    raw.sendall(piece if "chunked" in length else piece[7:-2])
            answer = b""
            with suppress(ConnectionError):
                answer = raw.recv(64)
            assert answer.startswith(b"HTTP/1.1 413") or answer == b""
        require_answer(gateway)
    assert process.memory_info().rss - before < MAX_GROWTH


def test_ten_thousand_idle_connections_leave_room_for_others(gateway: ScriptedGateway) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard != resource.RLIM_INFINITY and hard < IDLE + SPARE_FILES:
        pytest.skip(f"needs {IDLE + SPARE_FILES} open files (`ulimit -Hn`), and may have {hard}")
    require_answer(gateway)
    process = process_of(gateway)
    before = process.memory_info().rss
    words = [sys.executable, "-c", HOLD, *map(str, address(gateway)), str(IDLE)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        assert json.loads(holder.stdout.readline()) == IDLE
        require_answer(gateway)
        assert process.num_fds() > IDLE
        assert process.memory_info().rss - before < IDLE * MAX_IDLE_BYTES
        holder.stdin.close()
    require_answer(gateway)
