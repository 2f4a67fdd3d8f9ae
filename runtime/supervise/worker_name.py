"""Names of worker processes on the bus, in logs and in status tables."""

from __future__ import annotations

import secrets
import socket


def worker_name(kind: str, index: int | None = None) -> str:
    """Return a name such as `slm-1.host.3f2a`: unique across hosts, slots and restarts. A successor
    must not be mistaken for the dead worker, whose leases have not expired yet."""
    host = "".join(letter if letter.isalnum() else "-" for letter in socket.gethostname())[:20]
    slot = kind if index is None else f"{kind}-{index}"
    return f"{slot}.{host}.{secrets.token_hex(2)}"


def slot_of(name: str) -> str:
    """Return the slot in a worker's name, `slm-1`, which it shares with its successors."""
    return name.partition(".")[0]


def kind_of(name: str) -> str:
    """Return the worker kind in a name from `worker_name`."""
    slot = slot_of(name)
    kind, dash, index = slot.rpartition("-")
    return kind if dash and index.isdigit() else slot
