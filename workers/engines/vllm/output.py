"""What remains of a server's output for an error: the exceptions that it reported, and its last
lines."""

from __future__ import annotations

import re

KEPT_LINES = 8
"""Last lines that are kept."""
KEPT_CAUSES = 4
"""First exceptions that are kept. A server of several processes first reports the root cause, and
ends with tracebacks of the processes that waited for the failed one."""
_MOST_CHARACTERS = 2_000
"""Longest line that is read."""
_QUOTED_CHARACTERS = 1_000
"""Longest quotation of exceptions, and of lines."""
_CAUSE = re.compile(r"(?:^|[\])] )((?:\w+\.)*\w*(?:Error|Exception)(?:: \S.*|$))")
"""The last line of a traceback, behind the prefixes of a process and of a log."""


class LastOutput:
    """See the module docstring."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._causes: list[str] = []

    def add(self, line: str) -> None:
        line = line[:_MOST_CHARACTERS]
        self._lines = [*self._lines[-KEPT_LINES + 1 :], line]
        cause = _CAUSE.search(line)
        if cause and len(self._causes) < KEPT_CAUSES and cause[1] not in self._causes:
            self._causes.append(cause[1])

    def __str__(self) -> str:
        """The exceptions from their beginning, and the end of the last lines: a server that is
        killed reports no exception of its own."""
        causes = " | ".join(self._causes)[:_QUOTED_CHARACTERS]
        lines = " | ".join(self._lines)[-_QUOTED_CHARACTERS:]
        return f"{causes}; its last lines: {lines}" if causes else lines
