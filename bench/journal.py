"""The writing side of an output directory, in an order that survives a crash.

Two rules apply. A run id is on disk before the bus receives the run, so a crash never leaves a run
that is paid for and forgotten. A run's ledger and transcript are on disk before its result is
written, so a stored result is complete. Many runs share one flush to disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Self

from loopline.agents.records import JsonObject
from loopline.agents.usage import UsageEntry
from loopline.bench.append_log import AppendLog
from loopline.bench.ledger import Ledger
from loopline.bench.output import OutputDirectory
from loopline.bench.results import Admission, Result


class GroupFlush:
    """Runs `flush` in a thread; calls made during a flush share the next one."""

    def __init__(self, flush: Callable[[], None]) -> None:
        self._flush = flush
        self._running: asyncio.Task[None] | None = None
        self._next: asyncio.Task[None] | None = None

    async def __call__(self) -> None:
        """Return once everything written before the call is on disk."""
        if self._next is None:
            self._next = asyncio.create_task(self._flush_after(self._running))
        # A cancelled caller must not cancel the flush for the others.
        await asyncio.shield(self._next)

    async def _flush_after(self, earlier: asyncio.Task[None] | None) -> None:
        if earlier is not None:
            await asyncio.wait([earlier])
        # From here on, a write may be too late for this flush.
        self._running, self._next = self._next, None
        await asyncio.to_thread(self._flush)


class Journal:
    """Appends to the logs of one benchmark. A context manager; one writer at a time."""

    def __init__(self, directory: OutputDirectory) -> None:
        self._directory = directory
        self._items = AppendLog(directory.items_path)
        self._transcripts = AppendLog(directory.transcripts_path)
        self._ledger: Ledger | None = None
        self._items_flush = GroupFlush(self._items.sync)
        self._flush = GroupFlush(self._sync_evidence)

    def __enter__(self) -> Self:
        self._directory.lock()
        try:
            self._items.open()
            self._transcripts.open()
            self._ledger = Ledger(self._directory.ledger_path)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def notices(self) -> list[str]:
        """Notices about data dropped when the files were opened."""
        ledger = self._ledger.notice if self._ledger else None
        candidates = (self._items.notice, self._transcripts.notice, ledger)
        return [notice for notice in candidates if notice]

    async def admit(self, admitted: Admission) -> None:
        """Write a run id before its admission; it is on disk when this returns."""
        self._items.append(admitted.model_dump(mode="json"))
        await self._items_flush()

    async def finish(
        self, result: Result, transcript: JsonObject, entries: Sequence[UsageEntry]
    ) -> list[UsageEntry]:
        """Write a finished run; return the ledger entries that were new."""
        added = self.charge(entries)
        self._transcripts.append(transcript)
        await self._flush()
        self._items.append(result.model_dump(mode="json"))
        return added

    def charge(self, entries: Sequence[UsageEntry]) -> list[UsageEntry]:
        """Book calls, skipping those already booked."""
        if self._ledger is None:
            raise ValueError("the journal is not open")
        return self._ledger.add(entries)

    def close(self) -> None:
        """Flush and close everything, so that another bench can open it."""
        if self._ledger is not None:
            self._sync_evidence()
            self._items.sync()
            self._ledger.close()
            self._ledger = None
        self._items.close()
        self._transcripts.close()
        self._directory.unlock()

    def _sync_evidence(self) -> None:
        self._transcripts.sync()
        if self._ledger is not None:
            self._ledger.sync()
