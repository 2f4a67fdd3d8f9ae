"""What every stream does, whatever it asks: it goes on in its folder, serves in batches, looks
after each whether a round is due, waits for the store, and counts its CPU time."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection
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
LOOKS, ATTACKS = "looks.jsonl", "attacks.jsonl"


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


async def serve_in_batches(
    folder: Path,
    total: int,
    size: int,
    serve: Callable[[range], Awaitable[None]],
    look: Callable[[Collection[int | None]], Awaitable[int | None]],
) -> None:
    """Serve `total` questions in batches, and look behind each but the last whether a round is due.

    `looks.jsonl` has each look and the number of its round, so that a killed stream repeats none.
    `look` is given the numbers that are in it: a round may have ended in a sitting that was killed
    before it wrote so.
    """
    with AppendLog(folder / LOOKS, GO_ON) as looks:
        lines = [line for _, line in read_log(looks.path)]
        looks_taken = {line["served"] for line in lines}
        noted = {line["round"] for line in lines}
        for begin in range(0, total, size):
            end = min(begin + size, total)
            await serve(range(begin, end))
            if end in looks_taken or end == total:
                continue
            number = await look(noted)
            noted.add(number)
            looks.append({"served": end, "round": number}, sync=True)


def served_before_rounds(folder: Path) -> dict[int, int]:
    """By round of the stream, the number of questions that were served before it."""
    return {
        line["round"]: line["served"]
        for _, line in read_log(folder / LOOKS)
        if line["round"] is not None
    }


def attack_counts(folder: Path) -> dict[str, int]:
    """By name, the attacks on the deployment while it served."""
    counts = Counter[str]()
    for _, line in read_log(folder / ATTACKS):
        counts.update(line["attacks"])
    return dict(counts)
