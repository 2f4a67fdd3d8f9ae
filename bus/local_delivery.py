"""Within one process: messages that it publishes to streams which it serves itself, and mail that
it sends to itself.

A script that publishes reads for the process in the same step (`read_next` in end_run.lua), so its
own message needs no blocking read to come back. Nothing else changes: the delivery has a lease,
what waited on the stream for longer comes first, and a process that dies before it learns what it
has read loses it to another, as with any reader.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from loopline.bus.envelope import FIELD
from loopline.bus.keys import Shard
from loopline.bus.run_state import RunState

if TYPE_CHECKING:
    from loopline.bus.consumer import Consumer


class Mailbox(Protocol):
    """What waits in this process for replies and for the ends of runs."""

    def told_reply(self, key: str, reply: bytes) -> None: ...

    def told_end(self, run_id: str, state: RunState | None) -> None: ...


class LocalDelivery:
    """The streams that this process serves, and its mailboxes."""

    def __init__(self) -> None:
        self._readers: dict[str, Consumer] = {}
        self._mailboxes: list[Mailbox] = []

    def serve(self, streams: Sequence[str], reader: Consumer) -> None:
        """From now on `reader` takes what is published here to these streams."""
        self._readers |= dict.fromkeys(streams, reader)

    def stop_serving(self, reader: Consumer) -> None:
        self._readers = {
            name: served_by for name, served_by in self._readers.items() if served_by is not reader
        }

    def open(self, mailbox: Mailbox) -> None:
        self._mailboxes.append(mailbox)

    def close(self, mailbox: Mailbox) -> None:
        self._mailboxes.remove(mailbox)

    def tell_reply(self, key: str, reply: bytes) -> None:
        """A reply is on the bus, but for the inbox of this process."""
        for mailbox in self._mailboxes:
            mailbox.told_reply(key, reply)

    def tell_end(self, run_id: str, state: RunState | None) -> None:
        """A run has ended, and everybody was told but this process; `state` where it is known."""
        for mailbox in self._mailboxes:
            mailbox.told_end(run_id, state)

    @contextmanager
    def reading(self, shard: Shard, streams: Sequence[str]) -> Generator[LocalReads]:
        """Places for one delivery of each of these streams that is served here, until the end of
        the block."""
        with ExitStack() as stack:
            readers: list[Consumer | None] = []
            for stream in streams:
                reader = self._readers.get(stream)
                if reader is not None and reader.reserve():
                    stack.callback(reader.release)
                    readers.append(reader)
                else:
                    readers.append(None)
            yield LocalReads(shard, streams, readers)


class LocalReads:
    """What one script may read."""

    def __init__(
        self, shard: Shard, streams: Sequence[str], readers: Sequence[Consumer | None]
    ) -> None:
        self._shard = shard
        self._streams = streams
        self._readers = readers

    @property
    def names(self) -> list[str]:
        """Of the consumers, one for each stream; empty where the stream is not served here."""
        return [reader.name if reader else "" for reader in self._readers]

    def take(self, replies: Sequence[Any], bodies: Sequence[bytes], state: RunState) -> None:
        """Start on what was read: by stream, as `read_next` returns it. `state` is that of the
        run whose messages `bodies` are."""
        for stream, reader, reply, body in zip(
            self._streams, self._readers, replies, bodies, strict=True
        ):
            if reader is None or not reply:
                continue
            for entry, fields in reply[1]:
                pairs = dict(zip(fields[::2], fields[1::2], strict=True))
                read = pairs.get(FIELD.encode(), b"")
                reader.take(
                    self._shard, stream, entry.decode(), read, 1, state if read == body else None
                )
