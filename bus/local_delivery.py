"""Short cuts for messages that stay within one process: on streams that it serves itself, and to
its own inbox.

A script that publishes also reads for the process (`read_next` in parts/entries.lua), so that its
message comes back without a blocking read. All else stays as with any reader: the delivery has a
lease, the oldest entry of the stream comes first, and if the process dies before it learns what it
has read, another process takes the entry over.
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
    """The part of this process that waits for replies and for ends of runs."""

    def waits_for(self, key: str) -> bool: ...

    def told_reply(self, key: str, reply: Reply) -> None: ...

    def told_coming(self, state: RunState) -> None: ...

    def told_end(self, run_id: str, state: RunState | None) -> None: ...


class LocalDelivery:
    """The streams that this process serves, and its mailboxes."""

    def __init__(self) -> None:
        self._readers: dict[str, Consumer] = {}
        self._mailboxes: list[Mailbox] = []
        self.starting: dict[str, EagerStart] = {}
        """Starts of runs that are being admitted, by run."""

    def serve(self, streams: Sequence[str], reader: Consumer) -> None:
        """Let `reader` take what is published here to these streams from now on."""
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
        """Begin with a message before it is published; None where it is not served here, or there
        is no place for it."""
        reader = self._readers.get(stream)
        if reader is None or not reader.reserve():
            return None
        try:
            return reader.begin(start.shard, stream, envelope, body, start.state, start, record)
        except BusError:
            return None  # its reader says what is wrong with it
        finally:
            reader.release()

    @contextmanager
    def starting_run(
        self, shard: Shard, state: RunState, stream: str, envelope: Envelope, body: bytes
    ) -> Generator[EagerStart | None]:
        """The start of a run whose first step begins here, until it is admitted; None where it
        begins elsewhere. A caller that leaves the block before `settle` has given it up."""
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
        """Whether only steps of this process wait for this reply, which then commit it."""
        return any(mailbox.waits_for(key) for mailbox in self._mailboxes)

    def tell_reply(self, key: str, reply: Reply) -> None:
        """A reply is on the bus, but for the inbox of this process."""
        for mailbox in self._mailboxes:
            mailbox.told_reply(key, reply)

    def tell_coming(self, state: RunState) -> None:
        """A run is going to have ended so, if a commit that is about to be sent is applied."""
        for mailbox in self._mailboxes:
            mailbox.told_coming(state)

    def tell_end(self, run_id: str, state: RunState | None) -> None:
        """Notify this process that a run has ended, of which all others were notified; `state` if
        it is known."""
        for mailbox in self._mailboxes:
            mailbox.told_end(run_id, state)

    @contextmanager
    def reading(self, shard: Shard, streams: Sequence[str]) -> Generator[LocalReads]:
        """Reserve places for one delivery of each of these streams that is served here, until the
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
        """Names of the consumers, one for each stream; empty where the stream is not served
        here."""
        return [reader.name if reader else "" for reader in self._readers]

    def take(self, replies: Sequence[Any], bodies: Sequence[bytes], state: RunState) -> None:
        """Start on what was read: by stream, as `read_next` returns it. `state` is that of the run
        whose messages `bodies` are."""
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
