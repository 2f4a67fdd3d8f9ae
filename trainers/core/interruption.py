"""Ctrl-C: the command finishes the current step, since half a step could not be resumed exactly;
then it reports how to continue."""

from __future__ import annotations

import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType

import typer


class Interruption:
    """Whether a stop was requested."""

    def __init__(self) -> None:
        self.requested = False

    def note(self, number: int, frame: FrameType | None) -> None:
        """Signal handler. A second Ctrl-C stops at once and loses the work since the last
        checkpoint."""
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True


@contextmanager
def deferred_interrupt() -> Generator[Interruption]:
    """Record SIGINT and SIGTERM instead of raising them. Outside the main thread, where Python
    delivers no signals, this changes nothing."""
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


@contextmanager
def exit_on_interrupt() -> Generator[None]:
    """Ctrl-C ends the command with exit code 130 and a message on how to continue; typer's own exit
    is silent."""
    try:
        yield
    except KeyboardInterrupt:
        typer.echo("stopped; resume with the same command, without --restart", err=True)
        raise typer.Exit(130) from None
