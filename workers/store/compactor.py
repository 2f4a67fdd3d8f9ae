"""The part of a recorder that compacts what it has written, while it continues writing."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import structlog

from loopline.agents.tools.threads import run_in_own_thread
from loopline.workers.store.compaction import AlreadyCompacting, Compacted, compact
from loopline.workers.store.files import TABLES, FileName, parquet_files

log = structlog.get_logger("loopline.workers.store")


class Compactor:
    """Checks the tables of a store periodically, and compacts one if a shard has too many small
    files. Errors are logged and retried later: they slow down readers but lose no rows."""

    def __init__(self, store: Path, small_files: int, pause: float) -> None:
        """`small_files`: number of a shard's small files at which its table is compacted. `pause`:
        seconds between two checks."""
        self._store = store
        self._small_files = small_files
        self._pause = pause
        self._draining = asyncio.Event()
        self._stopped = False
        self._seen: dict[Path, set[str]] = {}
        """Files left by the last compaction."""
        self.done = Compacted()

    def drain(self) -> None:
        self._stopped = True
        self._draining.set()

    async def run(self) -> None:
        """Compact the store until drained. A compaction in progress then stops at its next step,
        which loses nothing."""
        while not self._draining.is_set():
            for table in TABLES:
                await self._look(self._store / table)
            try:
                async with asyncio.timeout(self._pause):
                    await self._draining.wait()
            except TimeoutError:
                continue

    async def _look(self, table: Path) -> None:
        if self._stopped or not self._is_due(table):
            return
        try:
            result = await run_in_own_thread(self._compact, table)
        except AlreadyCompacting:
            return  # Another recorder of the same folder, or a command, is compacting.
        except Exception as error:  # noqa: BLE001 - a full disk must not end the recorder
            kind = type(error).__name__
            log.error("not compacted", table=table.name, error=str(error), kind=kind)
            result = Compacted()
        # After a failure, too: the obstacle will still be there at the next check, so retry only
        # after this many new files.
        self._seen[table] = {path.name for path in parquet_files(table)}
        self.done.files += result.files
        self.done.into += result.into
        if result.files:
            log.info(
                "compacted", table=table.name, files=result.files, into=result.into,
                rows=result.rows, duplicates=result.duplicates,
            )  # fmt: skip

    def _compact(self, table: Path) -> Compacted:
        return compact(table, small=self._small_files, stop=lambda: self._stopped)

    def _is_due(self, table: Path) -> bool:
        """Whether a shard has this many new files since the last complete compaction."""
        present = self._seen.get(table, set[str]())
        names = (
            FileName.parse(path.name) for path in parquet_files(table) if path.name not in present
        )
        shards = Counter(name.shard for name in names if name is not None)
        return any(number >= self._small_files for number in shards.values())
