"""Names of worker processes on the bus, in logs and in status tables."""

from __future__ import annotations

import secrets
import socket


def worker_name(kind: str, index: int | None = None) -> str:
    """`slm-1.host.3f2a`: unique over hosts, slots and restarts. A successor must not be taken for
    the dead one whose leases are still running out."""
    host = "".join(letter if letter.isalnum() else "-" for letter in socket.gethostname())[:20]
    slot = kind if index is None else f"{kind}-{index}"
    return f"{slot}.{host}.{secrets.token_hex(2)}"


def slot_of(name: str) -> str:
    """`slm-1`, as the process is called, too, that takes the place of one that died."""
    return name.partition(".")[0]


def kind_of(name: str) -> str:
    """The worker kind in a name that `worker_name` made."""
    slot = slot_of(name)
    kind, dash, index = slot.rpartition("-")
    return kind if dash and index.isdigit() else slot
