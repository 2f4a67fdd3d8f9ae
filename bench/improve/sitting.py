"""Steps shared by all streams: resume in the folder, serve in batches, check after each batch
whether a round is due, wait for the store, and count CPU time."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TypeVar

from loopline.agents.records import Record
from loopline.bench.append_log import AppendLog, read_log
from loopline.bench.errors import BenchError, OutputError
from loopline.runtime.admitted_runs import AdmittedRuns
from loopline.trainers.core.checkpoints import claimed_settings, require_same_recipe
from loopline.trainers.core.json_records import find_record, write_record
from loopline.trainers.core.output_folder import lock_output
from loopline.workers.store.files import read_batches

RECORDED_SECONDS = 120.0
"""Seconds within which an ended run must reach the store."""
RESUME_COMMAND = "the same `bench improve` command"
LOOKS, SERVED, ATTACKS = "looks.jsonl", "served.jsonl", "attacks.jsonl"
AT_ONCE = 32
"""Maximum number of questions in flight."""


class Timed(Record):
    """Result of a stream with its CPU time."""

    cpu_seconds: float
    """CPU seconds of all processes."""


ResultT = TypeVar("ResultT", bound=Timed)


def claim(path: Path, settings: Record, folder: Path) -> None:
    """Claim the folder for this stream. Raises `TrainingError` if it belongs to another stream."""
    if path.exists():
        require_same_recipe(claimed_settings(path, type(settings)), settings, folder)
    else:
        write_record(path, settings)


async def until_recorded(store: Path, runs: Collection[str]) -> None:
    """Return once all these runs are in the store. Raises `BenchError` if they don't arrive in
    time."""
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
                f"{len(missing):,} ended runs, such as {min(missing)}, are not in the store "
                f"{folder} after {RECORDED_SECONDS:g} s: see the recorder's log"
            )
        await asyncio.sleep(0.2)


def admitted_runs(folder: Path) -> AdmittedRuns:
    """Return the run ids of the stream in `folder`, by purpose."""
    return AdmittedRuns(folder / "admitted.jsonl", resume=RESUME_COMMAND, failure=OutputError)


class CpuClock:
    """CPU seconds of this process and its reaped children, over all sittings of a folder."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "cpu.jsonl"
        self._began = _spent()

    def stop(self, uncounted: float) -> float:
        """Return the CPU seconds of all sittings. `uncounted`: seconds of processes that no process
        waited for."""
        with AppendLog(self._path, RESUME_COMMAND) as log:
            log.append({"seconds": _spent() - self._began + uncounted})
        return sum(float(line["seconds"]) for _, line in read_log(self._path))


def _spent() -> float:
    # Starting another process reaps the supervisor that has exited.
    subprocess.run(("true",), check=False)
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def play_once(
    folder: Path, settings: Record, kind: type[ResultT], play: Callable[[], tuple[ResultT, float]]
) -> ResultT:
    """Return the result in `folder`, or else that of `play`, with the CPU seconds of all sittings.
    `play` also returns the seconds of processes that no process waited for. Raises
    `FixableError`s."""
    finished = find_record(folder / "result.json", kind)
    with lock_output(folder):
        claim(folder / "settings.json", settings, folder)
        if finished is not None:
            return finished
        clock = CpuClock(folder)
        result, uncounted = play()
        result = result.model_copy(update={"cpu_seconds": clock.stop(uncounted)})
        write_record(folder / "result.json", result)
    return result


async def serve_in_batches(
    folder: Path,
    total: int,
    size: int,
    serve: Callable[[range], Awaitable[None]],
    look: Callable[[Collection[int | None]], Awaitable[int | None]],
) -> None:
    """Serve `total` questions in batches; after each batch but the last, check whether a round is
    due. `looks.jsonl` records each check and the number of its round, so that a killed stream
    repeats none. `look` receives the recorded numbers: a sitting may have been killed after a round
    ended and before it was recorded.
    """
    with AppendLog(folder / LOOKS, RESUME_COMMAND) as looks:
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


async def serve_under_attack(
    folder: Path,
    indices: range,
    attacked: AbstractAsyncContextManager[Counter[str]],
    ask: Callable[[int], Awaitable[Record]],
) -> None:
    """Ask the questions of a batch that are not yet in `served.jsonl`; write their results, and the
    attacks during that time."""
    places = asyncio.Semaphore(AT_ONCE)
    with (
        AppendLog(folder / SERVED, RESUME_COMMAND) as log,
        AppendLog(folder / ATTACKS, RESUME_COMMAND) as attacks,
    ):
        finished = {line["index"] for _, line in read_log(log.path)}

        async def serve(index: int) -> None:
            async with places:
                entry = await ask(index)
            log.append(entry.model_dump(mode="json"))

        async with attacked as injected, asyncio.TaskGroup() as group:
            for index in indices:
                if index not in finished:
                    group.create_task(serve(index))
        attacks.append({"served": indices.stop, "attacks": injected})


def served_before_rounds(folder: Path) -> dict[int, int]:
    """Return the number of questions served before each round of the stream, by round."""
    return {
        line["round"]: line["served"]
        for _, line in read_log(folder / LOOKS)
        if line["round"] is not None
    }


def attack_counts(folder: Path) -> dict[str, int]:
    """Return the number of attacks on the deployment while it served, by name."""
    counts = Counter[str]()
    for _, line in read_log(folder / ATTACKS):
        counts.update(line["attacks"])
    return dict(counts)
