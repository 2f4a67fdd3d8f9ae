"""Requests to hosts that callers specify: they only go to checked, public addresses.

A host name that is resolved for the check and again for the request may resolve to another address
the second time (DNS rebinding). The request therefore goes to the checked address, with the host's
name.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import Mapping, Sequence

import httpx2

from loopline.workers.engines.openai.proxy import proxy_for

_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
"""Prefix of IPv4 addresses in an IPv6 network (RFC 6052)."""
_NOT_PUBLIC = tuple(
    ipaddress.ip_network(network)
    for network in (
        *("::/96", "::ffff:0:0:0/96", "64:ff9b:1::/48", "3fff::/20", "5f00::/16", "fec0::/10"),
        *("168.63.129.16/32", "192.0.0.192/32"),
    )
)
"""Networks for internal use that some versions of Python count as public, among them old embeddings
of IPv4 addresses, and the addresses of two clouds' own services."""


async def resolve(host: str) -> list[str]:
    """Return the addresses of a host, preferred address first. Raises OSError."""
    entries = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in entries))


def is_public(address: str) -> bool:
    """Whether an address is public, including the IPv4 address that it may embed."""
    ip = ipaddress.ip_address(address)
    if isinstance(ip, ipaddress.IPv6Address):
        inner = ip.ipv4_mapped or ip.sixtofour or (ip.teredo[1] if ip.teredo else None)
        if ip in _NAT64:
            inner = ipaddress.IPv4Address(int(ip) & 0xFFFF_FFFF)
        if inner is not None and not is_public(str(inner)):
            return False
    internal = any(ip in network for network in _NOT_PUBLIC)
    return ip.is_global and not ip.is_multicast and not internal


def client(url: str, verify: ssl.SSLContext | bool = True) -> httpx2.AsyncClient:
    """Return a client for a `post` to this URL, through the proxy that the environment sets for it.
    It keeps no connections: a connection opened for one host would be reused for another host at
    the same address without a check of that host's certificate. Raises ProxyUnusable."""
    proxy = proxy_for(url)
    return httpx2.AsyncClient(
        verify=verify,
        follow_redirects=False,
        limits=httpx2.Limits(max_keepalive_connections=0),
        proxy=None if proxy is None else proxy.url,
        trust_env=False,
    )


async def post(
    http: httpx2.AsyncClient,
    url: str,
    addresses: Sequence[str],
    content: bytes,
    headers: Mapping[str, str],
    seconds: float,
) -> httpx2.Response:
    """Post to the first of these addresses that accepts a connection, without resolving the host's
    name again: `Host` and the certificate are for the name. Raises httpx2's errors, and
    TimeoutError after `seconds`."""
    target = httpx2.URL(url)
    timeout = httpx2.Timeout(seconds, connect=seconds / max(1, len(addresses)))
    host = target.raw_host.decode("ascii")
    failure: httpx2.TransportError = httpx2.ConnectError(f"{host} has no address")
    async with asyncio.timeout(seconds):
        for address in addresses:
            try:
                return await http.post(
                    target.copy_with(host=address),
                    content=content,
                    headers={**headers, "host": target.netloc.decode("ascii")},
                    extensions={"sni_hostname": host},
                    timeout=timeout,
                )
            except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
                failure = error
    raise failure
