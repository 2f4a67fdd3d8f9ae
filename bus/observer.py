"""Events of a process's own work on the bus, for counting. The bus keeps no figures; a process
without an observer pays only for empty calls."""

from __future__ import annotations


class Observer:
    """Called for each event as it happens, in the event loop, so it must be quick. This one does
    nothing."""

    def begun(self, stream: str, queued: float) -> None:
        """A handler starts on a delivery that lay `queued` seconds on its stream."""

    def handled(self, stream: str, seconds: float) -> None:
        """A handler has ended, however it did."""

    def retried(self, stream: str) -> None:
        """A delivery failed and was scheduled again."""

    def lease_lost(self, stream: str) -> None:
        """Another worker has a delivery that this process had in hand."""

    def lease_taken_over(self, stream: str) -> None:
        """This process has a delivery whose lease ran out in another worker's hands."""

    def dead_lettered(self, stream: str) -> None:
        """A message was moved to the dead letters."""
