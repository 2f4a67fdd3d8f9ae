"""What a process may be told of its own work on the bus, so that someone can count it. The bus
keeps no figures, and a process that sets no observer of its own pays for empty calls alone."""

from __future__ import annotations


class Observer:
    """Told of each event as it happens, in the event loop; what it does must be quick. This one
    does nothing."""

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
