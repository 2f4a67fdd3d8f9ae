"""The output folder of arms, and running them, several at a time.

    OUTPUT/settings.json             everything that determines the results
    OUTPUT/seed-1/<arm>/             see `arm`
    OUTPUT/clock.json                seconds of the wall clock so far
    OUTPUT/report.json               results of all arms

Finished work is not repeated.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

from loopline.agents.records import Record
from loopline.trainers.core.checkpoints import (
    claimed_settings,
    require_disk,
    require_same_recipe,
    require_unused,
)
from loopline.trainers.core.curves import DEFAULT_TRACKERS
from loopline.trainers.core.job_processes import JobLine, run_jobs
from loopline.trainers.core.json_records import find_record, write_record
from loopline.trainers.core.output_folder import make_folder
from loopline.trainers.errors import TrainingError
from loopline.trainers.grpo.arms.results import Arm, ArmResult, read_result
from loopline.trainers.grpo.arms.settings import SETTINGS, ArmSettings

CLOCK = "clock.json"
REPORT = "report.json"
WORKER = "loopline.trainers.grpo.arms.worker"
Watcher = Callable[[Arm, JobLine], None]
_KEPT_EVERY = 5.0
"""Seconds between two writes of the clock."""
_DISK = 64 * 1024 * 1024


class Clock(Record):
    """Elapsed time over all parts of an interrupted run."""

    seconds: float = 0.0


def run_arms(
    arms: Sequence[Arm],
    output: Path,
    *,
    jobs: int,
    watcher: Callable[[int, int], Watcher],
    trackers: tuple[str, ...] = DEFAULT_TRACKERS,
) -> bool:
    """Run the unfinished arms, `jobs` at a time; False if Ctrl-C stopped it.

    `watcher` is called with the number of all arms and of unfinished ones; the watcher that it
    returns receives their progress. `trackers` receive the curves of each. Raises `TrainingError`s.
    """
    require_disk(output, _DISK)

    def done(arm: Arm) -> bool:
        return read_result(arm.folder(output)) is not None

    def ready(arm: Arm) -> bool:
        return all(map(done, arm.needs))

    remaining = [arm for arm in arms if not done(arm)]
    reporter = watcher(len(arms), len(remaining))
    tracked = [",".join(trackers)]
    return asyncio.run(run_jobs(remaining, WORKER, output, jobs, reporter, ready, tracked))


def results_of(arms: Sequence[Arm], output: Path) -> list[ArmResult]:
    """Results of finished arms. Raises `TrainingError` for an unfinished one."""
    results: list[ArmResult] = []
    for arm in arms:
        result = read_result(arm.folder(output))
        if result is None:
            raise TrainingError(f"{arm.folder(output)} has no result: run the command again")
        results.append(result)
    return results


def claim(
    output: Path, settings: ArmSettings, *, restart: bool = False, more_seeds: bool = False
) -> None:
    """Mark the folder as belonging to these settings; with `more_seeds` it may contain other seeds
    as well. Raises `TrainingError` if it belongs to others."""
    path = output / SETTINGS
    existing_settings = claimed_settings(path, type(settings)) if path.exists() else None
    if existing_settings is not None and not restart:
        if more_seeds:
            existing_settings = existing_settings.model_copy(update={"seeds": settings.seeds})
        require_same_recipe(existing_settings, settings, output)
        return
    if existing_settings is not None:
        for seed in output.glob("seed-*"):
            shutil.rmtree(seed, ignore_errors=True)
        for name in (REPORT, CLOCK):
            (output / name).unlink(missing_ok=True)
    else:
        require_unused(output)
    make_folder(output)
    write_record(path, settings)


@contextmanager
def track_seconds(output: Path) -> Generator[Callable[[], float]]:
    """Yield a function that returns the seconds so far, including earlier parts. They are saved
    however the block ends; after a kill, all but the last few."""
    path = output / CLOCK
    record = find_record(path, Clock, f"remove {path}, and the time so far is forgotten")
    before = record.seconds if record is not None else 0.0
    began = time.monotonic()

    def seconds() -> float:
        return before + time.monotonic() - began

    def keep() -> None:
        write_record(path, Clock(seconds=round(seconds(), 3)))

    ended = Event()

    def keep_now_and_then() -> None:
        while not ended.wait(_KEPT_EVERY):
            try:
                keep()
            except OSError:
                # The end of the block reports a full disk: it tries to write once more.
                return

    keeper = Thread(target=keep_now_and_then, name=CLOCK, daemon=True)
    keeper.start()
    try:
        yield seconds
    finally:
        ended.set()
        keeper.join()
        keep()
