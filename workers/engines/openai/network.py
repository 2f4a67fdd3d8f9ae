"""What both ways to an endpoint have in common (`transport`)."""

from __future__ import annotations

IDLE_SECONDS = 5.0
"""A connection that nobody has used for longer is closed: servers close theirs, too."""


class NetworkError(Exception):
    """No answer, or only a part of one."""

    def __init__(self, message: str, *, timed_out: bool = False, never_sent: bool = False) -> None:
        super().__init__(message)
        self.timed_out = timed_out
        self.never_sent = never_sent
        """Nothing of the request can have reached the endpoint."""


def error_text(error: BaseException) -> str:
    return str(error) or type(error).__name__
