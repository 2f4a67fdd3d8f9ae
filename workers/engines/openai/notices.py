"""What is said once about an endpoint."""

from __future__ import annotations

import logging

from loopline.bus.bounded import Remembered

MAX_NOTICES = 256
"""An endpoint that has more peculiarities is told of the oldest again."""


class Notices:
    """Peculiarities of one endpoint, as warnings."""

    def __init__(self, endpoint: str, log: logging.Logger) -> None:
        """`endpoint` names it in each warning."""
        self._endpoint = endpoint
        self._log = log
        self._said: Remembered[str, None] = Remembered(MAX_NOTICES)

    def log_once(self, what: str) -> None:
        if what not in self._said:
            self._said.set(what, None)
            self._log.warning("%s %s", self._endpoint, what)
