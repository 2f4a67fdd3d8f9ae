"""kill -9 of compacting processes, next to a recorder that writes and a query that reads."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from loopline.workers.store.compaction import compact
from loopline.workers.store.files import parquet_files

from .store_rows import a_table, entry, rows, write

COMPACTING = """
import sys, time
from pathlib import Path
from loopline.workers.store import compaction
from loopline.workers.store.compaction import AlreadyCompacting, compact
compaction.FULL_BYTES = 20_000
print("begun", flush=True)
sys.stdout = None
while True:
    try:
        compact(Path(sys.argv[1]) / "trajectories", everything=sys.argv[2] == "everything")
    except AlreadyCompacting:
        time.sleep(0.001)
"""
BATCHES = 60


def compacting(store: Path, how: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", COMPACTING, str(store), how], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    with process.stdout as output:
        assert output.readline() == "begun\n"
    return process


@contextmanager
def killed_again_and_again(store: Path) -> Generator[list[int]]:
    """Two compacting processes, one of which is repeatedly killed and restarted; the list counts
    the kills."""
    kills: list[int] = []
    ending = threading.Event()
    rng = random.Random(7)
    steady = compacting(store, "as they come")

    def kill() -> None:
        while not ending.is_set():
            process = compacting(store, "everything")
            ending.wait(rng.random() * 0.1)
            process.kill()
            process.wait()
            kills.append(process.pid)

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield kills
    finally:
        ending.set()
        thread.join()
        steady.kill()
        steady.wait()


def plain_query(store: Path) -> list[str]:
    """Read the folder like another program: list it once, and start again when a listed file is
    gone."""
    while True:
        try:
            tables = [
                pq.read_table(str(path), columns=["entry"])
                for path in parquet_files(store / "trajectories")
            ]
        except FileNotFoundError:
            continue
        return [entry for table in tables for entry in table["entry"].to_pylist()]


@pytest.mark.slow
def test_killed_compactions_lose_and_duplicate_no_row(tmp_path: Path) -> None:
    write(tmp_path, entry(1, 1))
    recorder = a_table(tmp_path)
    with killed_again_and_again(tmp_path) as kills:
        for batch in range(1, BATCHES):
            places = [batch * 3 + number for number in range(3)]
            asyncio.run(recorder.write([entry(place, place) for place in places]))
            counted = plain_query(tmp_path)
            assert len(counted) == len(set(counted)) == 1 + batch * 3
        while len(kills) < 5:
            assert len(plain_query(tmp_path)) == 1 + (BATCHES - 1) * 3
    compact(tmp_path / "trajectories", everything=True)
    assert len(rows(tmp_path)) == 1 + (BATCHES - 1) * 3
    assert list((tmp_path / "compaction").iterdir()) == []
