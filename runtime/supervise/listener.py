"""The gateways' listening socket.

The supervisor opens the socket and every gateway of the machine inherits it. The gateways share its
connections, and while one of them restarts, connections wait instead of being refused. A gateway
that is started by hand opens its own socket.
"""

from __future__ import annotations

import errno
import os
import socket
from typing import Self

import psutil

from loopline.runtime.config.sections import GatewaySettings
from loopline.runtime.errors import ConfigError

GATEWAY = "gateway"
LISTENER_VARIABLE = "LOOPLINE_GATEWAY_LISTENER"
"""Descriptor of the supervisor's socket."""
BACKLOG = 2_048


class Listener:
    """An open socket on the gateway's address."""

    def __init__(self, opened: socket.socket) -> None:
        self.socket = opened

    @classmethod
    def open(cls, settings: GatewaySettings) -> Self:
        """Open the socket. Raises `ConfigError` if it can't listen on the address."""
        family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
        opened = socket.socket(family, socket.SOCK_STREAM)
        try:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            opened.bind((settings.host, settings.port))
            opened.listen(BACKLOG)
        except OSError as error:
            opened.close()
            holder = _holder(settings.port) if error.errno == errno.EADDRINUSE else ""
            raise ConfigError(
                f"the gateway can't listen on {settings.host}:{settings.port}: {error.strerror}"
                + (f", {holder}" if holder else ""),
                hint="--set gateway.port=0 takes a free port, --set gateway.port=PORT another one;"
                " --set workers.gateway.count=0 starts no gateway.",
            ) from error
        return cls(opened)

    @classmethod
    def inherited(cls, settings: GatewaySettings) -> Self:
        """Return the supervisor's socket; in a process that was started by hand, a new one."""
        number = os.environ.pop(LISTENER_VARIABLE, "")
        return cls(socket.socket(fileno=int(number))) if number else cls.open(settings)

    def fileno(self) -> int:
        return self.socket.fileno()

    @property
    def url(self) -> str:
        """Base URL of OpenAI's API here."""
        name, port = self.socket.getsockname()[:2]
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(str(name), str(name))
        return f"http://{f'[{host}]' if ':' in host else host}:{port}/v1"

    def close(self) -> None:
        self.socket.close()


def _holder(port: int) -> str:
    """Name the process that listens on a port of this machine, if this user may see it."""
    try:
        for connection in psutil.net_connections("tcp"):
            if (
                connection.status == psutil.CONN_LISTEN
                and connection.laddr
                and connection.laddr.port == port
            ):
                process = psutil.Process(connection.pid)
                return f"by process {process.pid} ({process.name()}, in {process.cwd()})"
    except (psutil.Error, OSError):
        pass  # another user's process: the address is still in use
    return ""
