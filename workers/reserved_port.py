"""A port of 127.0.0.1 for a server that listens later, and again after each restart."""

from __future__ import annotations

import os
import socket
import sys
import weakref


def reserve_port(owner: object) -> int:
    """Return a free port. On Linux it is reserved while `owner` lives: the system gives it to
    nobody who asks for any port, and a server that listens with `SO_REUSEADDR`, as servers do,
    gets it. Elsewhere such a server would not get it, so it is free and no more than that.
    """
    reserved = socket.socket()
    reserved.bind(("127.0.0.1", 0))
    port = int(reserved.getsockname()[1])
    if sys.platform == "linux":
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        weakref.finalize(owner, os.close, reserved.detach())
    else:
        reserved.close()
    return port
