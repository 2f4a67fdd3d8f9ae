"""A recorder compacts its files while it writes."""

from __future__ import annotations

import asyncio
import errno
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from structlog.testing import capture_logs

from loopline.bus import Bus
from loopline.testing import end_workers, start_worker
from loopline.workers.settings import RecorderSettings
from loopline.workers.store import compaction
from loopline.workers.store.compactor import Compactor
from loopline.workers.store.files import FileName, parquet_files
from tests.bus.serving import until

from .store_rows import a_table, entry
from .test_recorder import USAGE


def calls(store: Path) -> list[str]:
    """Read the rows like a plain query, again if a compaction finished meanwhile."""
    while True:
        try:
            tables = [
                pq.read_table(str(path), columns=["call_id"])
                for path in parquet_files(store / "usage")
            ]
        except FileNotFoundError:
            continue
        return [call for table in tables for call in table["call_id"].to_pylist()]


async def test_repeatedly_killed_recorders_keep_each_row_once_in_few_files(
    bus: Bus, tmp_path: Path
) -> None:
    store, key = tmp_path / "store", bus.keys.shard(0).ledger
    settings = RecorderSettings(
        bus=bus.settings, store=store, linger_seconds=0, compact_files=3, compact_seconds=0.02
    )
    recorder = start_worker(settings, tmp_path)
    published = 0
    try:
        for _ in range(3):
            for _ in range(12):
                usage = json.dumps(USAGE | {"call_id": str(published)})
                await bus.redis.xadd(key, {b"usage": usage.encode()})
                published += 1

                async def recorded(number: int = published) -> bool:
                    return len(calls(store)) >= number - 1

                await until(recorded, "the rows but the last one")
            recorder.kill()
            recorder.wait()
            recorder = start_worker(settings, tmp_path)

        async def all_in_few_files() -> bool:
            files = parquet_files(store / "usage")
            return len(calls(store)) == published and len(files) < 10

        await until(all_in_few_files, "all rows in few files")
    finally:
        end_workers([recorder])
    assert sorted(calls(store), key=int) == [str(number) for number in range(published)]
    names = [FileName.parse(path.name) for path in parquet_files(store / "usage")]
    assert max(name.rows for name in names if name is not None) > 2


async def test_a_failed_compaction_does_not_stop_the_recorder_and_is_not_retried_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(first: Path, second: Path) -> None:
        raise OSError(errno.ENOTSUP, "Operation not supported")

    monkeypatch.setattr(compaction, "exchange", refuse)
    for place in range(1, 5):
        await a_table(tmp_path).write([entry(place, place)])
    compactor = Compactor(tmp_path, small_files=4, pause=0.001)
    with capture_logs() as lines:
        running = asyncio.create_task(compactor.run())
        await until(lambda: _said(lines), "the failure")
        await compactor._look(tmp_path / "trajectories")  # pyright: ignore[reportPrivateUsage]
        compactor.drain()
        await running
    assert [line["kind"] for line in lines if line["event"] == "not compacted"] == ["OSError"]


async def _said(lines: Sequence[Mapping[str, Any]]) -> bool:
    return any(line["event"] == "not compacted" for line in lines)
