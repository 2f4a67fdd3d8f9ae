"""Run ids: UUIDv7 (RFC 9562, section 5.7), so that they sort by the time of admission."""

from __future__ import annotations

import secrets
import time
import uuid


def time_of_run_id(run_id: str) -> float | None:
    """Return the Unix seconds at which `new_run_id` made an id; None for another kind of id."""
    try:
        value = uuid.UUID(run_id)
    except ValueError:
        return None
    return (value.int >> 80) / 1000 if value.version == 7 else None


def new_run_id(now: float | None = None) -> str:
    """Return a run id: 48 bits of milliseconds since 1970, followed by 74 random bits."""
    milliseconds = int((time.time() if now is None else now) * 1000)
    random = secrets.randbits(74)
    value = (
        (milliseconds & (1 << 48) - 1) << 80
        | 0x7 << 76
        | (random >> 62) << 64
        | 0b10 << 62
        | random & (1 << 62) - 1
    )
    return str(uuid.UUID(int=value))
