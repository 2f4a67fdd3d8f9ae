"""A TCP relay between a client and the gateway, which counts the gateway's refusals."""

from __future__ import annotations

import select
import socket
import threading
from urllib.parse import urlsplit

REFUSED = b"HTTP/1.1 429 "
PIECE = 65_536


class Relay:
    """Passes bytes both ways, and counts the responses with status 429."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        assert parts.port is not None
        self._target = (parts.hostname, parts.port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}{parts.path}"
        self.refusals = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._pass_both_ways, args=(client,), daemon=True).start()

    def _pass_both_ways(self, client: socket.socket) -> None:
        """Relay until one side closes, then close the other, as would happen without a relay."""
        with client, socket.create_connection(self._target) as server:
            other = {client: server, server: client}
            while True:
                readable, _, _ = select.select(list(other), [], [])
                for source in readable:
                    try:
                        piece = source.recv(PIECE)
                        other[source].sendall(piece)
                    except OSError:
                        return
                    if not piece:
                        return
                    self.refusals += source is server and piece.startswith(REFUSED)
