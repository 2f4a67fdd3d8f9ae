"""Proxy, if any, between this process and one address.

httpx2 builds a transport for every proxy in the environment, whether or not the address needs it: a
SOCKS proxy without its package would then stop requests that bypass it. So this module looks up the
one proxy that an address needs and passes only that one to httpx2.
"""

from __future__ import annotations

import importlib.util
import ipaddress
from dataclasses import dataclass
from urllib.parse import urlsplit
from urllib.request import getproxies_environment

from loopline.workers.installation import install_hint


@dataclass(frozen=True)
class Proxy:
    """`url` may contain a password: only `name` is for display."""

    url: str
    variable: str
    """Environment variable that sets the proxy."""

    @property
    def name(self) -> str:
        """Scheme, host and port."""
        parts = urlsplit(self.url)
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        return f"{parts.scheme}://{host}" + (f":{parts.port}" if parts.port else "")


class ProxyUnusable(Exception):
    """The environment sets a proxy that cannot be used; the text says what to do."""


def proxy_for(url: str) -> Proxy | None:
    """The proxy that the environment sets for `url`; None for a direct connection.

    `HTTP_PROXY`, `HTTPS_PROXY` and `ALL_PROXY` in either case; `NO_PROXY` lists hosts (and their
    subdomains), addresses and networks, each with or without a port, or `*`. Other entries are
    ignored, as curl does. Raises ProxyUnusable.
    """
    named = getproxies_environment()
    parts = urlsplit(url)
    if _is_excluded(parts.hostname or "", parts.port, named.get("no", "")):
        return None
    for scheme in (parts.scheme, "all"):
        address = named.get(scheme, "").strip()
        if not address:
            continue
        proxy = Proxy(
            address if "://" in address else f"http://{address}", f"{scheme.upper()}_PROXY"
        )
        _require_usable(proxy)
        return proxy
    return None


def _require_usable(proxy: Proxy) -> None:
    otherwise = f"unset {proxy.variable}, or add the host to NO_PROXY"
    try:
        name, scheme = proxy.name, urlsplit(proxy.url).scheme
        if not proxy.url.isprintable():
            raise ValueError("it contains an invisible character")
    except ValueError as error:
        raise ProxyUnusable(
            f"{proxy.variable} is not the address of a proxy ({error}), such as "
            f"http://proxy.example:3128; correct it, {otherwise}"
        ) from None
    if scheme in ("http", "https"):
        return
    if scheme not in ("socks5", "socks5h"):
        raise ProxyUnusable(
            f"{proxy.variable} is {name}, but only http, https, socks5 and socks5h proxies are "
            f"supported; {otherwise}"
        )
    if importlib.util.find_spec("socksio") is None:
        raise ProxyUnusable(
            f"{proxy.variable} is the SOCKS proxy {name}, which needs the package socksio; "
            f"{install_hint('socks')}, {otherwise}"
        )


def _is_excluded(host: str, port: int | None, no_proxy: str) -> bool:
    address = _address(host)
    for entry in no_proxy.split(","):
        entry = entry.strip().lower()
        if entry == "*":
            return True
        wanted, wanted_port = _host_and_port(entry)
        if not wanted or wanted_port not in (None, port):
            continue
        network = _network(wanted)
        if network is not None:
            if address is not None and address in network:
                return True
        elif host == (name := wanted.removeprefix("*").removeprefix(".")) or host.endswith(
            f".{name}"
        ):
            return True
    return False


def _host_and_port(entry: str) -> tuple[str, int | None]:
    if entry.startswith("["):
        host, _, rest = entry[1:].partition("]")
        network, _, port = rest.partition(":")
        return host + network, int(port) if port.isdecimal() else None
    host, colon, port = entry.rpartition(":")
    if colon and port.isdecimal() and ":" not in host:
        return host, int(port)
    return entry, None


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _network(entry: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(entry, strict=False)
    except ValueError:
        return None
