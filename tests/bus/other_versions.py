"""The third version of the bus tests' payload, and runs whose first message has another version."""

from __future__ import annotations

import time
from typing import Any

from pydantic import BaseModel, model_validator

from loopline.bus import Bus, Envelope, Outgoing, Registry
from loopline.bus.bus import Admission
from tests.bus.payloads import new_run_id, note


class Line(BaseModel):
    """The third version of a note."""

    words: list[str]

    @model_validator(mode="after")
    def _not_cursed(self) -> Line:
        if "cursed" in self.words:
            raise RuntimeError("a validator that raises what it should not")
        return self


def third_version() -> Registry:
    registry = Registry()
    registry.register("note", Line, version=3)
    registry.upcast("note", 1, lambda old: {"sentence": old["text"]})
    registry.upcast("note", 2, lambda old: {"words": old["sentence"].split()})
    return registry


async def admit_strange(bus: Bus, **changes: Any) -> str:
    """Admit a run whose first message comes from another version of this software; return its
    id."""
    run_id = new_run_id()
    strange = Envelope.model_validate({**note(run_id).model_dump(), **changes})
    await bus.admit(Admission(run_id, b"{}", time.time() + 60, (Outgoing("planner", strange),)))
    return run_id
