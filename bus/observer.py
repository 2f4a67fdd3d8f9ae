"""Events of a process's own work on the bus, for metrics. The bus keeps no statistics; a process
without an observer pays only for empty calls."""

from __future__ import annotations


class Observer:
    """Called for each event as it happens, in the event loop, so it must be fast. This one does
    nothing."""

    def begun(self, stream: str, queued: float) -> None:
        """A handler starts on a delivery that waited `queued` seconds on its stream."""

    def handled(self, stream: str, seconds: float) -> None:
        """A handler has finished, in any way."""

    def retried(self, stream: str) -> None:
        """A delivery failed and was rescheduled."""

    def lease_lost(self, stream: str) -> None:
        """Another worker has taken over a delivery that this process had in hand."""

    def lease_taken_over(self, stream: str) -> None:
        """This process has taken over a delivery whose lease expired with another worker."""

    def dead_lettered(self, stream: str) -> None:
        """A message was moved to the dead letters."""
