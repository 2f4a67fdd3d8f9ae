"""Start a step before its run is admitted, in the process that admits the run.

A process that serves the stream of a run's first step has all inputs of that step. So the step
starts immediately, and nothing is sent until it reaches a paid call: then admission, request and
mark go to Redis in one script (`start.lua`), which does what the three would do in sequence. A step
has no visible effect before that. So if the run is refused, or another reader gets its message, the
step is dropped without effect.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from loopline.bus.budgets import Reservation
from loopline.bus.envelope import FIELD, Envelope
from loopline.bus.errors import NotDelivered
from loopline.bus.run_state import RunState
from loopline.bus.scripts import Value

if TYPE_CHECKING:
    from loopline.bus.consumer import Consumer
    from loopline.bus.keys import Shard
    from loopline.bus.local_delivery import LocalDelivery

LONGEST_WAIT = 1.0
"""Maximum seconds that an admission waits for its first step: long enough for a step that waits for
its turn on an overloaded machine."""

UNKNOWN_ENTRY = "@entry"
"""Placeholder for the id of a stream entry that does not exist yet."""


class EagerDelivery:
    """A message that is handled before it is published."""

    def __init__(self, start: EagerStart, reader: Consumer, stream: str, body: bytes) -> None:
        self.start: EagerStart | None = start
        """The start of its run; None once the run is admitted or given up. Otherwise the two would
        refer to each other, and stay in memory until the garbage collector runs."""
        self.reader = reader
        self.stream = stream
        self.body = body
        self.entry: str | None = None
        """Id of the message's stream entry, once this process holds it."""
        self.on_held: list[Callable[[str], None]] = []
        """Callbacks that receive the entry's id in the same loop step in which it becomes known."""
        self.task: asyncio.Task[None] | None = None
        self.ended = False

    def end(self) -> None:
        """Record that the handler has finished, perhaps before the message was published."""
        self.ended = True
        if self.start is not None:
            self.start.ready.set()

    async def held(self) -> None:
        """Wait until this process holds the message. Raises `NotDelivered` if it never will."""
        if self.start is not None:
            await self.start.send()
        if self.entry is None:
            raise NotDelivered("the message was delivered elsewhere, or was never published")

    async def mark(
        self, number: int, unknown: bytes, most: Reservation
    ) -> bytes | list[bytes] | None:
        """Mark a call with the admission; return the answer of `mark.lua`. None: mark it as usual.
        Raises `NotDelivered`."""
        if self.start is not None:
            return await self.start.mark_call(self, number, unknown, most)
        await self.held()
        return None

    def leave_start(self) -> None:
        """Work without the start from now on. The step stops if another reader has the message, or
        if it was never published."""
        self.start, self.on_held = None, []
        if self.entry is None and self.task is not None:
            self.task.cancel()

    def settle(self, shard: Shard, read: Any) -> None:
        """Record what the script has read for this reader, and start on it if it is another
        message."""
        entries: list[tuple[bytes, list[bytes]]] = read[1] if read else []
        for entry, fields in entries:
            body = dict(zip(fields[::2], fields[1::2], strict=True)).get(FIELD.encode(), b"")
            if body == self.body and not self.ended:
                entry_id = self.entry = entry.decode()
                for listener in self.on_held:
                    listener(entry_id)
            else:
                self.reader.take(shard, self.stream, entry.decode(), body, 1)


@dataclass
class _Mark:
    number: int
    unknown: bytes
    most: Reservation
    word: bytes | list[bytes] | None = None


@dataclass
class _Request:
    keys: Sequence[str]
    args: Sequence[Value]
    delivery: EagerDelivery | None
    answer: list[Any] | None = None


@dataclass
class EagerStart:
    """The start of a run that is being admitted."""

    run_id: str
    shard: Shard
    state: RunState
    local: LocalDelivery
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when nothing more can be sent with the admission."""
    sent: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the script was called, or the run was given up."""
    first: EagerDelivery | None = None
    request: _Request | None = None
    mark: _Mark | None = None

    async def wait_until_ready(self) -> None:
        """Wait until the first step needs the admission, or takes too long."""
        timer = asyncio.get_running_loop().call_later(LONGEST_WAIT, self.ready.set)
        try:
            await self.ready.wait()
        finally:
            timer.cancel()

    def end(self) -> None:
        """Notify waiters that nothing more is coming, and stop work that was started for
        nothing."""
        self.ready.set()
        self.sent.set()
        for delivery in (self.first, self.request and self.request.delivery):
            if delivery is not None:
                delivery.leave_start()

    async def send(self) -> None:
        """Send the admission as it is now, and wait until it was sent."""
        self.ready.set()
        await self.sent.wait()

    async def ask(
        self,
        stream: str,
        envelope: Envelope,
        keys: Sequence[str],
        args: Sequence[Value],
        record: BaseModel | None = None,
    ) -> list[Any] | None:
        """Send a request with the admission; return the answer of `request.lua`. None: send it as
        usual, the run is admitted. Raises `NotDelivered`."""
        if not self.ready.is_set() and self.request is None:
            body = args[0]
            assert isinstance(body, bytes)
            delivery = self.local.begin(self, stream, envelope, body, record)
            self.request = _Request(keys, args, delivery)
            if delivery is None:
                self.ready.set()
            await self.sent.wait()
            if self.request.answer is not None:
                return self.request.answer
        await self.send()
        if self.first is None or self.first.entry is None:
            raise NotDelivered(f"run {self.run_id} was started elsewhere, or never")
        return None

    async def mark_call(
        self, delivery: EagerDelivery, number: int, unknown: bytes, most: Reservation
    ) -> bytes | list[bytes] | None:
        """See `EagerDelivery.mark`."""
        request, mark = self.request, None
        if not self.ready.is_set() and request is not None and request.delivery is delivery:
            mark = self.mark = _Mark(number, unknown, most)
        await delivery.held()
        return None if mark is None else mark.word

    def script_parts(
        self, admit_keys: list[str], admit_args: list[Value], body: bytes
    ) -> tuple[list[str], list[Value]]:
        """Keys and arguments of start.lua. `admit_args` lacks the message and its reader."""
        assert self.first is not None
        reader = "" if self.first.ended else self.first.reader.name
        admit = [*admit_args, body, reader]
        keys, args = list(admit_keys), list[Value]()
        request, mark = self.request, self.mark
        request_keys: Sequence[str] = ()
        request_args: list[Value] = []
        if request is not None:
            second = request.delivery
            name = "" if second is None or second.ended else second.reader.name
            request_keys, request_args = request.keys, [*request.args, name]
        mark_args: list[Value] = []
        if mark is not None:
            line = mark.unknown.split(UNKNOWN_ENTRY.encode(), 1)
            mark_args = [mark.number, *mark.most.script_values, *line]
        keys += request_keys
        args += [len(admit_keys), len(admit), len(request_keys), len(request_args)]
        return keys, [*args, *admit, *request_args, *mark_args]

    def settle(self, results: list[Any]) -> None:
        """Process the results of start.lua."""
        assert self.first is not None
        admitted = results[0]
        if admitted[0] == b"admitted":
            self.first.settle(self.shard, admitted[1])
        if len(results) > 1 and self.request is not None:
            answer, second = results[1], self.request.delivery
            read = answer[2] if len(answer) == 3 else None
            if second is not None:
                second.settle(self.shard, read)
            self.request.answer = answer[:2] if read else answer
        if len(results) > 2 and self.mark is not None:
            self.mark.word = results[2]
