"""Ctrl-C that waits for the end of a step: a step cut in two could not be resumed exactly."""

from __future__ import annotations

import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType


class Interruption:
    """Whether a stop has been asked for."""

    def __init__(self) -> None:
        self.asked = False

    def note(self, number: int, frame: FrameType | None) -> None:
        """Signal handler. A second Ctrl-C stops at once, losing what the checkpoints lack."""
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True


@contextmanager
def deferred_interrupt() -> Generator[Interruption]:
    """SIGINT and SIGTERM are noted instead of raised. Outside the main thread, where Python
    delivers no signals, nothing is changed."""
    interruption = Interruption()
    if threading.current_thread() is not threading.main_thread():
        yield interruption
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, interruption.note) for number in numbers}
    try:
        yield interruption
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
