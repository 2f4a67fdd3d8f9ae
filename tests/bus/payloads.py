"""The payload of the bus tests."""

from __future__ import annotations

import time
import uuid
from typing import Any

from pydantic import BaseModel

from loopline.bus import Admission, Bus, Envelope, Outgoing
from loopline.bus.tenants import NO_TENANT, Tenant


class Note(BaseModel):
    """A line of text."""

    text: str = ""


class Woken(Note):
    """The payload that contains the event that ended a wait."""

    text: Any = ""


def woken_note(run_id: str, turn: int) -> Envelope:
    return note(run_id, turn=turn).model_copy(update={"type": "woken"})


def new_run_id() -> str:
    return str(uuid.uuid4())


def note(run_id: str, text: str = "", *, turn: int = 0, branch: int = 0, key: str = "") -> Envelope:
    return Envelope(
        type="note",
        run_id=run_id,
        turn=turn,
        branch=branch,
        deadline=time.time() + 60,
        reply_key=key,
        payload={"text": text},
    )


async def admit(
    bus: Bus, stream: str = "planner", *, text: str = "", seconds: float = 60, notify: str = "",
    tokens: int = 0, micro_dollars: int = 0, tenant: Tenant = NO_TENANT,
) -> str:  # fmt: skip
    """Admit a run whose first message is a note to `stream`; return its id."""
    run_id = new_run_id()
    await bus.admit(
        Admission(
            run_id, b'{"run": "record"}', time.time() + seconds,
            (Outgoing(stream, note(run_id, text)),),
            notify=notify, tokens_limit=tokens, micro_dollars_limit=micro_dollars,
            tenant=tenant,
        )
    )  # fmt: skip
    return run_id
