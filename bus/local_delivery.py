"""Shortcuts for messages that stay within one process: on streams that the process serves itself,
and to its own inbox.

A script that publishes also reads for the process (`read_next` in parts/entries.lua), so the
message comes back without a blocking read. Otherwise, it works as for any reader: the delivery has
a lease, the oldest stream entry comes first, and if the process dies before it learns which entry
it has read, another process takes the entry over.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from pydantic import BaseModel

from loopline.bus.eager_start import EagerDelivery, EagerStart
from loopline.bus.envelope import FIELD, Envelope
from loopline.bus.errors import BusError
from loopline.bus.keys import Shard
from loopline.bus.replies import Reply
from loopline.bus.run_state import RunState

if TYPE_CHECKING:
    from loopline.bus.commit import Outgoing
    from loopline.bus.consumer import Consumer


class Mailbox(Protocol):
    """The part of this process that waits for replies and for runs to end."""

    def waits_for(self, key: str) -> bool: ...

    def on_reply(self, key: str, reply: Reply) -> None: ...

    def on_expected_end(self, state: RunState) -> None: ...

    def on_end(self, run_id: str, state: RunState | None) -> None: ...


class LocalDelivery:
    """The streams that this process serves, and its mailboxes."""

    def __init__(self) -> None:
        self._readers: dict[str, Consumer] = {}
        self._mailboxes: list[Mailbox] = []
        self.starting: dict[str, EagerStart] = {}
        """Starts of runs that are being admitted, by run."""

    def serve(self, streams: Sequence[str], reader: Consumer) -> None:
        """Let `reader` take messages that this process publishes to these streams from now on."""
        self._readers |= dict.fromkeys(streams, reader)

    def serves(self, messages: Sequence[Outgoing]) -> bool:
        """Whether this process serves the stream of one of these messages."""
        return any(message.stream in self._readers for message in messages)

    def stop_serving(self, reader: Consumer) -> None:
        self._readers = {
            name: served_by for name, served_by in self._readers.items() if served_by is not reader
        }

    def open(self, mailbox: Mailbox) -> None:
        self._mailboxes.append(mailbox)

    def close(self, mailbox: Mailbox) -> None:
        self._mailboxes.remove(mailbox)

    def begin(
        self,
        start: EagerStart,
        stream: str,
        envelope: Envelope,
        body: bytes,
        record: BaseModel | None = None,
    ) -> EagerDelivery | None:
        """Start on a message before it is published; None if it is not served here, or no slot is
        free."""
        reader = self._readers.get(stream)
        if reader is None or not reader.reserve():
            return None
        try:
            return reader.begin(start.shard, stream, envelope, body, start.state, start, record)
        except BusError:
            return None  # its reader reports the problem
        finally:
            reader.release()

    @contextmanager
    def starting_run(
        self, shard: Shard, state: RunState, stream: str, envelope: Envelope, body: bytes
    ) -> Generator[EagerStart | None]:
        """The start of a run whose first step starts here, until the run is admitted; None if the
        step starts elsewhere. A caller that leaves the block before `settle` has given the run
        up."""
        start = EagerStart(state.run_id, shard, state, self)
        if state.run_id not in self.starting:
            start.first = self.begin(start, stream, envelope, body)
        if start.first is None:
            yield None
            return
        self.starting[state.run_id] = start
        try:
            yield start
        finally:
            del self.starting[state.run_id]
            start.end()

    def waits_for(self, key: str) -> bool:
        """Whether only steps of this process, which then commit the reply, wait for it."""
        return any(mailbox.waits_for(key) for mailbox in self._mailboxes)

    def tell_reply(self, key: str, reply: Reply) -> None:
        """Notify this process of a reply that is on the bus, but not in this process's inbox."""
        for mailbox in self._mailboxes:
            mailbox.on_reply(key, reply)

    def tell_expected_end(self, state: RunState) -> None:
        """Announce here that a run will end in this state if the commit being sent is applied."""
        for mailbox in self._mailboxes:
            mailbox.on_expected_end(state)

    def tell_end(self, run_id: str, state: RunState | None) -> None:
        """Notify this process that a run has ended; all others were already notified. `state` if
        known."""
        for mailbox in self._mailboxes:
            mailbox.on_end(run_id, state)

    @contextmanager
    def reading(self, shard: Shard, streams: Sequence[str]) -> Generator[LocalReads]:
        """Reserve a slot for one delivery of each of these streams that is served here, until the
        end of the block."""
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
    """Deliveries that one script may read."""

    def __init__(
        self, shard: Shard, streams: Sequence[str], readers: Sequence[Consumer | None]
    ) -> None:
        self._shard = shard
        self._streams = streams
        self._readers = readers

    @property
    def names(self) -> list[str]:
        """Names of the consumers, one for each stream; empty if the stream is not served here."""
        return [reader.name if reader else "" for reader in self._readers]

    def take(self, replies: Sequence[Any], bodies: Sequence[bytes], state: RunState) -> None:
        """Start on the entries that were read: by stream, as `read_next` returns them. `state` is
        that of the run whose messages are `bodies`."""
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
