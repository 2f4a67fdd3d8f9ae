"""What every stream does, whatever it asks: it goes on in its folder, waits for the store, and
counts its CPU time."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from collections.abc import Collection
from pathlib import Path

from loopline.agents.records import Record
from loopline.bench.append_log import AppendLog, read_log
from loopline.bench.errors import BenchError
from loopline.trainers.core.checkpoints import claimed_settings, require_same_recipe
from loopline.trainers.core.json_records import write_record
from loopline.workers.store.files import read_batches

RECORDED_SECONDS = 120.0
"""In which an ended run must have come to the store."""
GO_ON = "the same `bench improve` command"


def claim(path: Path, settings: Record, folder: Path) -> None:
    """Make the folder this stream's. Raises `TrainingError` where it is another one's."""
    if path.exists():
        require_same_recipe(claimed_settings(path, type(settings)), settings, folder)
    else:
        write_record(path, settings)


async def until_recorded(store: Path, runs: Collection[str]) -> None:
    """Return when all these runs are in the store. Raises `BenchError` if they don't come."""
    end = time.monotonic() + RECORDED_SECONDS
    while True:
        there: set[str] = set()
        folder = store / "trajectories"
        for _, _, batch in read_batches(folder, ("run_id",), []):
            there.update(batch["run_id"].to_pylist())
        missing = set(runs) - there
        if not missing:
            return
        if time.monotonic() > end:
            raise BenchError(
                f"{len(missing):,} ended runs, such as {min(missing)}, have not come to the "
                f"store {folder} in {RECORDED_SECONDS:g} s: see the recorder's log"
            )
        await asyncio.sleep(0.2)


class CpuClock:
    """Seconds of this process and of all that it has waited for, over all sittings of a folder."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "cpu.jsonl"
        self._began = _spent()

    def stop(self, uncounted: float) -> float:
        """All sittings together. `uncounted`: seconds of processes that nobody waited for."""
        with AppendLog(self._path, GO_ON) as log:
            log.append({"seconds": _spent() - self._began + uncounted})
        return sum(float(line["seconds"]) for _, line in read_log(self._path))


def _spent() -> float:
    # The supervisor that has ended is waited for when the next process is started.
    subprocess.run(("true",), check=False)
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
