"""W3C trace contexts of runs, their steps and their requests.

Every span id is derived from what the span stands for, so any process can name the span of another
as its parent, and a span that is exported twice is the same span.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import blake2b
from typing import Self

TRACEPARENT_TAG = "traceparent"
"""Tag of a run whose client brought its own trace."""
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
        """A W3C `traceparent`; None for what is not a valid one."""
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
    """The trace of a run: 32 hexadecimal digits, those of the W3C `traceparent` that its client has
    brought, else those of the run's id. An id that is not a UUID has no trace: "".
    """
    brought = TraceContext.parse(traceparent) if traceparent else None
    if brought is not None:
        return brought.trace_id
    trace = run_id.replace("-", "")
    return trace if _TRACE_ID.fullmatch(trace) else ""


def span_id_of(name: str) -> str:
    """The span of a run (its id), of a step (`step_name`), of a request (its key), or of another
    part of one of them: 16 hexadecimal digits."""
    return blake2b(name.encode(), digest_size=8).hexdigest()


def step_name(run_id: str, turn: int, branch: int) -> str:
    return f"{run_id}/{turn}.{branch}"


def traceparent_of(run_id: str, name: str, brought: str = "") -> str:
    """W3C `traceparent` of a span in the run's trace, for those whose parent it is; `name` as in
    `span_id_of`. `brought`: the one that the run's client came with, which also says whether anyone
    records the trace."""
    client = TraceContext.parse(brought) if brought else None
    if client is not None:
        return str(TraceContext(client.trace_id, span_id_of(name), client.sampled))
    # The usual case, in which nothing is parsed and no object made.
    trace = trace_id_of(run_id)
    return f"00-{trace}-{span_id_of(name)}-01" if trace else ""
