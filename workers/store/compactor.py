"""The part of a recorder that compacts what it has written, while it goes on writing."""

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
    """Looks at the tables of a store from time to time, and compacts one whose shards have more
    small files than they may. What fails is logged and tried again later: it costs readers time and
    no one a row."""

    def __init__(self, store: Path, small_files: int, pause: float) -> None:
        """`small_files`: of a shard, from which on its table is compacted. `pause`: seconds between
        two looks."""
        self._store = store
        self._small_files = small_files
        self._pause = pause
        self._draining = asyncio.Event()
        self._stopped = False
        self._seen: dict[Path, set[str]] = {}
        """Files that a compaction has left."""
        self.done = Compacted()

    def drain(self) -> None:
        self._stopped = True
        self._draining.set()

    async def run(self) -> None:
        """Compact the store until drained. The compaction in progress is then given up at its next
        step, which loses nothing."""
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
            return  # Another recorder of the same folder, or a command.
        except Exception as error:  # noqa: BLE001 - a full disk must not end the recorder
            kind = type(error).__name__
            log.error("not compacted", table=table.name, error=str(error), kind=kind)
            result = Compacted()
        # After a failure, too: what stands in the way is there at the next look as well, so it is
        # tried again once as many files have come.
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
