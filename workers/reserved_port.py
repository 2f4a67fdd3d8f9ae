"""Reserves a port of 127.0.0.1 for a server that listens later, and again after each restart."""

from __future__ import annotations

import os
import socket
import sys
import weakref


def reserve_port(owner: object) -> int:
    """Return a free port.

    On Linux it is reserved while `owner` lives: the system does not assign it to other processes
    that ask for any port, but a server that listens with `SO_REUSEADDR`, as servers do, can use it.
    On other systems such a server could not use a reserved port, so the port is only free now.
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
