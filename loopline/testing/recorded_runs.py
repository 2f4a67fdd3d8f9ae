"""Ended runs as a recorder reads them, for stores that no deployment has written to."""

from __future__ import annotations

import json

from loopline.agents.records import Trajectory


def as_on_the_bus(ended: Trajectory) -> dict[bytes, bytes]:
    """Return the fields of the stream entry in which the bus publishes an ended run."""
    return {
        b"run": ended.run.model_dump_json().encode(),
        b"steps": json.dumps([step.model_dump(mode="json") for step in ended.steps]).encode(),
        b"outcome": ended.outcome.value.encode(),
        b"answer": (ended.answer or "").encode(),
        b"reason": (ended.reason or "").encode(),
        b"ended": str(int(ended.ended * 1000)).encode(),
    }
