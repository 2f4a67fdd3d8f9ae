"""Policy changes: what changed, when, by whom and on which evidence. The log is on the bus, written
atomically with the change."""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from loopline.bus.bus import Bus

MAX_ENTRIES = 10_000
"""Approximate number of entries that are kept; the oldest are dropped first."""

PolicyAction = Literal[
    "publish", "pin", "rollback", "forget", "add",
    "canary", "canary stopped", "canary promoted", "canary rolled back",
]  # fmt: skip


class LogEntry(BaseModel):
    """One change."""

    model_config = ConfigDict(frozen=True)

    at: float
    """Time of the change, in Unix seconds by the bus's clock."""
    policy: str = Field(max_length=200)
    action: PolicyAction
    version: int
    """Version in use afterwards; for a new canary or a version that was only added, that
    version."""
    before: int
    """Version in use before."""
    by: str = Field(default="", max_length=200)
    """Author of the change: user and machine, an API key's name, or a worker."""
    evidence: Mapping[str, JsonValue] = Field(default_factory=dict[str, JsonValue])
    """Evidence for the change; empty if a person just decided so."""


async def read_log(bus: Bus, policy: str | None = None, count: int = 100) -> list[LogEntry]:
    """The latest changes of one policy or of all, newest first. Entries written by other programs
    are skipped."""
    entries: list[LogEntry] = []
    last = "+"
    while len(entries) < count:
        page = await bus.redis.xrevrange(bus.keys.policy_log, max=last, count=500)
        for entry_id, fields in page:
            last = f"({entry_id.decode()}"
            try:
                entry = LogEntry.model_validate_json(fields.get(b"change", b""))
            except ValidationError:
                continue
            if policy is None or entry.policy == policy:
                entries.append(entry)
        if len(page) < 500:
            break
    return entries[:count]


def this_process() -> str:
    """This process's name as the author of changes: user, machine and process."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}:{os.getpid()}"
