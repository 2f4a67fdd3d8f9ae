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
"""Longest quotation in an error, and longest line that is read."""
_CAUSE = re.compile(r"(?:^|[\])] )((?:\w+\.)*\w*(?:Error|Exception): \S.*)")
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
        """The exceptions; without any, the last lines."""
        return " | ".join(self._causes or self._lines)[-_MOST_CHARACTERS:]
