"""A caller's URL is reached only at the address that was checked."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Generator

import httpx2
import pytest
import trustme

from loopline.bus import Bus
from loopline.runtime.config.sections import GatewaySettings
from loopline.runtime.gateway import public_addresses
from loopline.runtime.gateway.webhooks import check_url
from tests.runtime.gateway.test_webhooks import Receiver, receiver

NAME = "hook.invalid"
"""A name that no resolver knows (RFC 2606)."""


@pytest.fixture
def hook() -> Generator[Receiver]:
    with receiver() as server:
        yield server


async def post(url: str, *addresses: str, verify: ssl.SSLContext | bool = True) -> int:
    async with public_addresses.client(url, verify) as http:
        answer = await public_addresses.post(http, url, addresses, b"{}", {"x-a": "b"}, 10)
    return answer.status_code


async def test_a_request_does_not_resolve_the_name_again(hook: Receiver) -> None:
    port = hook.server_address[1]
    assert await post(f"http://{NAME}:{port}/hook", "127.0.0.1") == 204
    headers, body = hook.deliveries[0]
    assert (headers["host"], headers["x-a"], body) == (f"{NAME}:{port}", "b", b"{}")


async def test_the_proxy_of_the_environment_is_used_unless_the_name_is_excluded(
    hook: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = hook.server_address[1]
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.2:1")
    with pytest.raises(httpx2.ConnectError):
        await post(f"http://{NAME}:{port}/hook", "127.0.0.1")
    monkeypatch.setenv("NO_PROXY", f"{NAME},::1/128")
    assert await post(f"http://{NAME}:{port}/hook", "127.0.0.1") == 204


async def test_the_next_address_is_tried_if_one_accepts_no_connection(hook: Receiver) -> None:
    port = hook.server_address[1]
    assert await post(f"http://{NAME}:{port}/hook", "127.0.0.2", "127.0.0.1") == 204
    with pytest.raises(httpx2.ConnectError):
        await post(f"http://{NAME}:{port}/hook", "127.0.0.2")


@pytest.mark.parametrize("name", [NAME, "other.invalid"])
async def test_the_certificate_must_match_the_name(name: str) -> None:
    authority = trustme.CA()
    server, client = (
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH),
        ssl.create_default_context(),
    )
    authority.issue_cert(NAME).configure_cert(server)
    authority.configure_trust(client)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"{}")
        writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
        await writer.drain()
        writer.close()

    listener = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=server)
    async with listener:
        url = f"https://{name}:{listener.sockets[0].getsockname()[1]}/"
        if name == NAME:
            assert await post(url, "127.0.0.1", verify=client) == 204
        else:
            with pytest.raises(httpx2.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
                await post(url, "127.0.0.1", verify=client)


async def test_a_webhook_is_sent_to_the_address_that_was_checked(
    bus: Bus, hook: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second resolution of the name leads to this machine."""
    answers = ["192.0.0.9", "127.0.0.1"]

    async def rebinding(host: object, port: object, **_: object) -> list[object]:
        address = answers.pop(0) if len(answers) > 1 else answers[0]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port or 0))]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", rebinding)
    url = f"http://{NAME}:{hook.server_address[1]}/hook"
    addresses = await check_url(url, GatewaySettings(host="0.0.0.0"))
    assert addresses == ["192.0.0.9"]
    async with public_addresses.client(url) as http:
        with pytest.raises((httpx2.TransportError, TimeoutError)):
            await public_addresses.post(http, url, addresses, b"{}", {}, 0.5)
    assert hook.deliveries == []


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("93.184.216.34", True),
        ("2606:2800:220:1::1", True),
        ("10.0.0.1", False),
        ("169.254.169.254", False),
        ("239.255.255.250", False),
        ("::ffff:127.0.0.1", False),
        ("2002:7f00:1::1", False),
        ("fe80::1%eth0", False),
        ("64:ff9b::a00:1", False),
        ("64:ff9b::808:808", True),
        ("64:ff9b:1::a00:1", False),
        ("::127.0.0.1", False),
        ("::ffff:0:127.0.0.1", False),
        ("fec0::1", False),
        ("5f00::1", False),
        ("168.63.129.16", False),
        ("192.0.0.192", False),
        ("192.0.0.9", True),
    ],
)
def test_which_addresses_are_public(address: str, public: bool) -> None:
    assert public_addresses.is_public(address) is public
