"""Follows the logs of any number of runs over one connection per shard.

Followers of one process share a blocking read. A follower that is slower than its run is dropped
from that read and catches up from the log itself, so it buffers a bounded number of entries here,
however much its run writes.

A log that this process itself writes to needs no read: its followers get each entry as soon as it
is in the log (`LocalLog`).
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections import deque
from collections.abc import AsyncGenerator, Generator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import structlog

from loopline.bus.connection import OUTAGE, pause_before, retry_during_outage
from loopline.bus.keys import INBOX_LIFE_MS, Shard

if TYPE_CHECKING:
    from loopline.bus.bus import Bus

log = structlog.get_logger("loopline.bus.log_follower")

Event = tuple[str, dict[str, str]]
"""An entry's id and its fields."""

MAX_WAITING = 1_000
"""Entries that a follower may leave unread before it is dropped from the shared read."""
PAGE = 500
SILENCE_SECONDS = 1.0
"""Seconds of silence after which a follower checks whether its run still exists."""


@dataclass(eq=False)
class _Subscription:
    """One follower's place in the shared read of a shard."""

    key: str
    position: tuple[int, int]
    entries: deque[Event] = field(default_factory=deque[Event])
    news: asyncio.Event = field(default_factory=asyncio.Event)
    dropped: bool = False
    count: int = 0
    """Entries of the log that a follower of a `LocalLog` has received."""

    def drop(self) -> None:
        """Let the follower continue from the log itself."""
        self.dropped = True
        self.news.set()

    def deliver_next(self, event: Event, count: int) -> None:
        """Deliver the entry with which the log has `count` entries, unless one is missing: then
        another process has written in between."""
        if count != self.count + 1 or len(self.entries) >= MAX_WAITING:
            self.drop()
        elif not self.dropped:
            self.count = count
            self.entries.append(event)
            self.news.set()

    def deliver(self, entry: bytes, fields: dict[bytes, bytes]) -> None:
        place = _place(entry.decode())
        # Another follower of this key may be further back: its entries were already read here.
        if self.dropped or place <= self.position:
            return
        if len(self.entries) >= MAX_WAITING:
            self.dropped = True
        else:
            self.position = place
            self.entries.append(_event(entry, fields))
        self.news.set()


class _ShardReader:
    """The only blocking read of a shard's logs."""

    def __init__(self, bus: Bus, shard: Shard) -> None:
        self._bus = bus
        # Only this process writes to it, to end its own blocking read when a follower joins.
        self._wake = shard.inbox(f"{bus.process}-logs")
        self._subscriptions: set[_Subscription] = set()
        self._added = asyncio.Event()
        self._blocked = False

    async def add(self, subscription: _Subscription) -> None:
        self._subscriptions.add(subscription)
        self._added.set()
        if self._blocked:
            # Without this entry, the follower waits for the end of the read: at most
            # `block_seconds`. A process that is killed in between would leave a key without an
            # expiry.
            with contextlib.suppress(*OUTAGE):
                async with self._bus.redis.pipeline(transaction=True) as pipe:
                    pipe.xadd(self._wake, {"type": "wake"}, maxlen=1)
                    pipe.pexpire(self._wake, INBOX_LIFE_MS)
                    await pipe.execute()

    def remove(self, subscription: _Subscription) -> None:
        self._subscriptions.discard(subscription)

    async def run(self) -> None:
        last_wake, failures = "0-0", 0
        block = int(self._bus.settings.block_seconds * 1000)
        while True:
            if not self._subscriptions:
                self._added.clear()
                await self._added.wait()
            followers = self._by_key()
            furthest_back = {key: min(s.position for s in some) for key, some in followers.items()}
            positions = {key: f"{ms}-{number}" for key, (ms, number) in furthest_back.items()}
            try:
                self._blocked = True
                streams = await self._bus.blocking.xread(
                    {self._wake: last_wake, **positions}, count=PAGE, block=block
                )
                failures = 0
            except OUTAGE as error:
                failures += 1
                if failures & (failures - 1) == 0:
                    log.warning("logs unreadable", error=str(error), tries=failures)
                last_wake = "0-0"  # a server that restarted without its data starts its ids again
                await asyncio.sleep(pause_before(failures))
                continue
            finally:
                self._blocked = False
            for name, entries in streams:
                key = name.decode()
                if key == self._wake:
                    last_wake = entries[-1][0].decode()
                    continue
                for entry, fields in entries:
                    for subscription in followers[key]:
                        subscription.deliver(entry, fields)

    def _by_key(self) -> dict[str, list[_Subscription]]:
        followers: dict[str, list[_Subscription]] = {}
        for subscription in self._subscriptions:
            if not subscription.dropped:
                followers.setdefault(subscription.key, []).append(subscription)
        return followers


@dataclass
class LocalLog:
    """A log that this process writes to."""

    writers: int = 0
    is_written: bool = False
    """Whether entries may have been written: a follower that comes now misses them."""
    followers: set[_Subscription] = field(default_factory=set[_Subscription])

    def deliver(self, event: Event, count: int) -> None:
        """Deliver an entry of this process, with which the log has `count` entries."""
        for follower in self.followers:
            follower.deliver_next(event, count)


class LogFollower:
    """Reads run logs for `Bus.follow`."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._readers: dict[Shard, _ShardReader] = {}
        self._local: dict[str, LocalLog] = {}

    def local(self, key: str) -> LocalLog | None:
        """The log of that key, if this process writes to it."""
        return self._local.get(key)

    @contextlib.contextmanager
    def writing(self, run_id: str) -> Generator[None]:
        """Deliver to followers here what this process writes to the run's log during the block.
        After it, they read the rest from the log."""
        key = self._bus.keys.shard_of(run_id).log(run_id)
        local = self._local.setdefault(key, LocalLog())
        local.writers += 1
        try:
            yield
        finally:
            local.writers -= 1
            if not local.writers:
                del self._local[key]
                for follower in local.followers:
                    follower.drop()

    async def follow(
        self, run_id: str, after: str, *, fresh: bool = False
    ) -> AsyncGenerator[Event]:
        """Entries of a run's log after `after`, without an end: the caller recognizes the last one.
        A `fresh` run has few entries, and the shared read delivers them, or its local writer. After
        `SILENCE_SECONDS` without entries, yields an entry without fields and with the previous
        entry's id."""
        shard = self._bus.keys.shard_of(run_id)
        key, reader = shard.log(run_id), self._reader(shard)
        while True:
            if not fresh:
                async for event in self.page(run_id, after):
                    after = event[0]
                    yield event
            subscription = _Subscription(key, _place(after))
            local = self._local.get(key) if fresh else None
            if local is not None and local.is_written:
                local = None
            fresh = False
            if local is not None:
                local.followers.add(subscription)
            else:
                await reader.add(subscription)
            try:
                while subscription.entries or not subscription.dropped:
                    while subscription.entries:
                        event = subscription.entries.popleft()
                        after = event[0]
                        yield event
                    subscription.news.clear()
                    if subscription.dropped:
                        break
                    try:
                        async with asyncio.timeout(SILENCE_SECONDS):
                            await subscription.news.wait()
                    except TimeoutError:
                        self._bus.background.check()
                        # Perhaps another process writes now.
                        subscription.dropped = local is not None
                        yield after, {}
            finally:
                reader.remove(subscription)
                if local is not None:
                    local.followers.discard(subscription)

    async def page(self, run_id: str, after: str) -> AsyncGenerator[Event]:
        """Entries that a run's log already has after `after`."""
        key = self._bus.keys.shard_of(run_id).log(run_id)
        while True:
            entries = await retry_during_outage(
                "follow",
                lambda: self._bus.redis.xrange(key, min=f"({after}", count=PAGE),  # noqa: B023
                give_up_after=self._bus.patience,
                where=f"at {self._bus.settings.safe_url}",
            )
            for entry, fields in entries:
                after = entry.decode()
                yield _event(entry, fields)
            if len(entries) < PAGE:
                return

    def _reader(self, shard: Shard) -> _ShardReader:
        reader = self._readers.get(shard)
        if reader is None:
            reader = self._readers[shard] = _ShardReader(self._bus, shard)
            self._bus.background.start(reader.run(), name=f"logs-{shard.index}")
        return reader


def _event(entry: bytes, fields: dict[bytes, bytes]) -> Event:
    return entry.decode(), {name.decode(): value.decode() for name, value in fields.items()}


_ENTRY_ID = re.compile(r"([0-9]{1,20})-([0-9]{1,20})")


def is_entry_id(text: str) -> bool:
    """Whether Redis accepts the text as a stream entry id: two 64-bit numbers."""
    match = _ENTRY_ID.fullmatch(text)
    return match is not None and all(int(part) < 2**64 for part in match.groups())


def _place(entry: str) -> tuple[int, int]:
    milliseconds, _, number = entry.partition("-")
    return int(milliseconds), int(number or 0)
