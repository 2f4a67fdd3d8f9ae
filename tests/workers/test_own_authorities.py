"""A server with a certificate of the user's own authority, which the environment names, is
reached by every client."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

pytest.importorskip("opentelemetry.proto", reason="needs make install")

import trustme

from loopline.workers.tool_sources import bounded_http, mcp_http
from loopline.workers.tracing.otlp import Collector


@pytest.fixture
async def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[str]:
    authority, file = trustme.CA(), tmp_path / "authority.pem"
    authority.cert_pem.write_to_path(str(file))
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(context)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "localhost", 0, ssl=context)
    async with server:
        yield f"https://localhost:{server.sockets[0].getsockname()[1]}/"


async def ask_api(url: str) -> None:
    async with bounded_http.bounded_client() as http:
        assert (await http.get(url)).is_success


async def ask_mcp_server(url: str) -> None:
    async with mcp_http.bounded_client({}, max_message_bytes=1_000, read_seconds=10) as http:
        assert (await http.get(url)).is_success


async def send_spans(url: str) -> None:
    async with Collector(url, {}, 10) as collector:
        await collector.send([], "")


@pytest.mark.parametrize("reach", [ask_api, ask_mcp_server, send_spans])
async def test_the_authority_of_the_environment_is_trusted(
    url: str, reach: Callable[[str], Awaitable[None]]
) -> None:
    await reach(url)
