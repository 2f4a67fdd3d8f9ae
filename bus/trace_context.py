"""W3C trace contexts of runs, their steps and their requests.

Every span id is derived from the span's subject, so any process can use another process's span as a
parent, and a span that is exported twice is the same span.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Self

TRACEPARENT_TAG = "traceparent"
"""Tag of a run whose client sent its own trace context."""
TRACEPARENT_HEADER = "traceparent"
"""Header of HTTP requests, and the key in MCP's `_meta`."""
MAX_TRACEPARENT_CHARS = 256

_SAMPLED = 0x01
_TRACE_ID = re.compile("[0-9a-f]{32}")
_TRACEPARENT = re.compile("([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")


@dataclass(frozen=True, slots=True)
class TraceContext:
    """A span within its trace."""

    trace_id: str
    """32 hexadecimal digits."""
    span_id: str
    """16 hexadecimal digits."""
    sampled: bool = True

    @classmethod
    def parse(cls, traceparent: str) -> Self | None:
        """A W3C `traceparent`; None if it is invalid."""
        match = _TRACEPARENT.fullmatch(traceparent[: MAX_TRACEPARENT_CHARS + 1])
        if match is None or len(traceparent) > MAX_TRACEPARENT_CHARS:
            return None
        version, trace_id, span_id, flags, more = match.groups()
        # Versions after 00 may append fields; ff is none.
        if version == "ff" or (version == "00" and more):
            return None
        if not (int(trace_id, 16) and int(span_id, 16)):
            return None
        return cls(trace_id, span_id, bool(int(flags, 16) & _SAMPLED))

    def __str__(self) -> str:
        """The context as a `traceparent`."""
        return f"00-{self.trace_id}-{self.span_id}-{_SAMPLED if self.sampled else 0:02x}"


def trace_id_of(run_id: str, traceparent: str = "") -> str:
    """The trace of a run: the 32 hexadecimal digits of its client's W3C `traceparent`, or else of
    the run's id. An id that is not a UUID has no trace: "".
    """
    client = TraceContext.parse(traceparent) if traceparent else None
    return _own_trace_id(run_id) if client is None else client.trace_id


@lru_cache(maxsize=4096)  # a process handles several messages of a run
def _own_trace_id(run_id: str) -> str:
    trace = run_id.replace("-", "")
    return trace if _TRACE_ID.fullmatch(trace) else ""


def span_id_of(name: str) -> str:
    """The span id of a run (its id), of a step (`step_name`), of a request (its key), or of another
    part of these: 16 hexadecimal digits."""
    return blake2b(name.encode(), digest_size=8).hexdigest()


def step_name(run_id: str, turn: int, branch: int) -> str:
    return f"{run_id}/{turn}.{branch}"


def traceparent_of(run_id: str, name: str, client_context: str = "") -> str:
    """W3C `traceparent` that makes a span of the run's trace the parent of other spans; `name` as
    in `span_id_of`. `client_context`: the context that the run's client sent, which also states
    whether the trace is recorded."""
    client = TraceContext.parse(client_context) if client_context else None
    if client is not None:
        return str(TraceContext(client.trace_id, span_id_of(name), client.sampled))
    # The usual case: no parsing and no extra object.
    trace = _own_trace_id(run_id)
    return f"00-{trace}-{span_id_of(name)}-01" if trace else ""
