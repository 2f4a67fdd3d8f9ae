"""`bench store`: a store of many runs, one small file per batch, is compacted. Before and after
that, a run is shown and everything is read as in a training."""

from __future__ import annotations

import asyncio
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Annotated

from pydantic import Field

from loopline.bench.errors import BenchError
from loopline.bench.proofs.harness import Options, Progress, Proof, random_seed
from loopline.bench.proofs.outcome import Measurement, Outcome, Violation, measured
from loopline.bench.proofs.store.rows import run_id, write_runs
from loopline.bench.statistics import quantile
from loopline.runtime.config.options import Option
from loopline.runtime.errors import UserError
from loopline.runtime.observe.recorded_index import NEWEST, recorded_page, recorded_runs
from loopline.runtime.observe.recorded_runs import from_store
from loopline.runtime.observe.run_index import RunQuery
from loopline.trainers.data.json_files import Skipped
from loopline.trainers.data.samples import AnyRun, iterate_samples
from loopline.workers.gc_tuning import pause_collection
from loopline.workers.store.compaction import compact
from loopline.workers.store.files import parquet_files
from loopline.workers.store.records import iterate_trajectories
from loopline.workers.store.samples import FOLDER

SHOW_MS = 200.0
STEPS_PER_SECOND = 100_000.0
PAGE_MS = 300.0
"""Limit for the median page of the list, after the first access of a process to the files."""
PAGE_LINES, PAGES = 50, 7
Reader = Callable[[Path, str | None, list[Skipped]], Iterator[AnyRun]]
BYTES_OF_RUN = 6_000
"""Bytes of a run on disk; a compaction needs room for one more file."""


class StoreOptions(Options):
    """Writes a store of recorded runs in one small file per batch, shows runs by their ids, lists
    them like the dashboard and reads them like a training, compacts the store, and does the same
    again.

    One million runs need 6 GB of disk, and a quarter of an hour.
    """

    runs: int = Field(default=20_000, ge=100, le=100_000_000)
    """Recorded runs of 2 to 6 steps, with about 150 tokens each."""
    batch: int = Field(default=50, ge=1, le=100_000)
    """Runs in a file before the compaction."""
    shows: int = Field(default=200, ge=1)
    """Runs to look up after the compaction; before it, one twentieth of them."""
    reads: int = Field(default=1_000_000, ge=1)
    """Most runs that are read; as whole records, one tenth of them. First, all ids are checked for
    runs that were recorded again."""
    folder: Path | None = None
    """Folder for the store, which is removed afterwards; by default a temporary one."""
    seed: Annotated[int, Option(default="random")] = Field(default_factory=random_seed)
    """Seed of the runs, and of the choice of those that are shown."""


def run(options: StoreOptions, progress: Progress) -> Outcome:
    """Raises `BenchError` if the disk has no room."""
    folder = options.folder or Path(tempfile.gettempdir())
    needed = options.runs * BYTES_OF_RUN + 2**30
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise BenchError(
            f"{folder} has {free / 1e9:.1f} GB free, but {options.runs:,} runs need "
            f"{needed / 1e9:.1f}: give a --folder on another disk, or fewer --runs"
        )
    with tempfile.TemporaryDirectory(prefix="bench-store-", dir=folder) as scratch:
        return _measure(Path(scratch), options, progress)


def _measure(store: Path, options: StoreOptions, progress: Progress) -> Outcome:
    outcome = Outcome(
        about=f"{options.runs:,} runs in files of {options.batch}; seed {options.seed}"
    )
    progress.outcome = lambda: outcome
    table = store / "trajectories"
    began = time.monotonic()
    steps = write_runs(table, options.runs, options.seed, options.batch)
    progress.say(f"written: {options.runs:,} runs in {time.monotonic() - began:.0f} s")
    outcome.facts["steps"] = steps
    _measure_reading(
        store, "before", max(3, options.shows // 20), steps, options, outcome, progress
    )
    began = time.monotonic()
    result = compact(table, everything=True)
    seconds = time.monotonic() - began
    progress.say(f"compacted in {seconds:.0f} s")
    outcome.measurements += [
        measured("compaction", seconds, "s"),
        measured("runs compacted per second", options.runs / seconds),
    ]
    outcome.facts["compacted_files"] = result.files
    _measure_reading(store, "after", options.shows, steps, options, outcome, progress)
    return outcome


def _measure_reading(
    store: Path,
    when: str,
    shows: int,
    steps: int,
    options: StoreOptions,
    outcome: Outcome,
    progress: Progress,
) -> None:
    bars = when == "after"
    files = parquet_files(store / "trajectories")
    outcome.facts[f"files_{when}"] = len(files)
    outcome.facts[f"bytes_{when}"] = sum(path.stat().st_size for path in files)
    outcome.facts[f"bytes_of_samples_{when}"] = sum(
        path.stat().st_size for path in parquet_files(store / FOLDER)
    )
    rng = random.Random(options.seed)
    ids = [run_id(rng.randrange(options.runs), options.seed) for _ in range(shows)]
    times: list[float] = []
    busy: list[float] = []
    for run in ids:
        began, cpu = time.perf_counter(), time.process_time()
        trajectory = from_store(store, run)
        busy.append(1000 * (time.process_time() - cpu))
        times.append(1000 * (time.perf_counter() - began))
        if trajectory is None or trajectory.run.id != run:
            outcome.violate([Violation("shown", "the store does not contain it", run)])
    command = [_command_ms(store, run) for run in ids[:5]]
    progress.say(f"shown {when}: {quantile(times, 0.5):.1f} ms at the median")

    def figure(name: str, value: float, unit: str, bar: float | None = None) -> Measurement:
        better = "lower" if unit == "ms" else "higher"
        return measured(
            name, value, unit, better=better, bar=bar if bars else None,
            subject=when, group="compaction",
        )  # fmt: skip

    outcome.measurements += [
        figure("show_ms p50", quantile(times, 0.5), "ms", SHOW_MS),
        figure("show_ms p99", quantile(times, 0.99), "ms", SHOW_MS),
        figure("show, processor time p50", quantile(busy, 0.5), "ms"),
        figure("show, processor time p99", quantile(busy, 0.99), "ms"),
        figure("whole command p50", quantile(command, 0.5), "ms"),
    ]
    try:
        pages = _list_ms(store, ids)
    except UserError as error:  # content that a visitor of the dashboard would read
        pages = {}
        outcome.facts[f"pages_{when}"] = str(error)
        if when == "after":
            outcome.violate([Violation("listed", str(error), "first page")])
    outcome.measurements += [
        figure(name, value, "ms", PAGE_MS if name.endswith("page p50") else None)
        for name, value in pages.items()
    ]
    for name, iterate, bar, reads in (
        ("reader_steps_per_s", iterate_samples, STEPS_PER_SECOND, options.reads),
        ("reader that builds every token", _with_tokens, None, options.reads),
        ("reader of whole records", iterate_trajectories, None, options.reads // 10 or 1),
    ):
        read, wall, cpu = _read(store, iterate, reads, outcome)
        if reads >= options.runs and read != steps:
            outcome.violate([Violation("read", f"{read:,} steps of {steps:,} were read", when)])
        progress.say(f"{name} {when}: {read / cpu:,.0f} steps/s per core")
        outcome.measurements += [
            figure(name, read / cpu, "steps/s per core", bar),
            figure(f"{name}, wall clock", read / wall, "steps/s"),
        ]


def _list_ms(store: Path, ids: Sequence[str]) -> dict[str, float]:
    """Time pages of the dashboard's list of runs: the first page of a process, which reads the
    bounds of all files; later pages from places in the middle; and a search for words that no
    question has. Raises `UserError` for a store that can't be read."""
    runs = recorded_runs(store)

    async def none_listed(wanted: Sequence[str]) -> list[bool]:
        return [False] * len(wanted)

    def page_ms(words: str, after: str) -> float:
        began = time.perf_counter()
        asyncio.run(recorded_page(runs, RunQuery(words=words), PAGE_LINES, after, none_listed))
        return 1000 * (time.perf_counter() - began)

    return {
        "first page of a process": page_ms("", NEWEST),
        "first page p50": quantile([page_ms("", NEWEST) for _ in range(PAGES)], 0.5),
        "later page p50": quantile([page_ms("", run) for run in ids[:PAGES]], 0.5),
        "search p50": quantile([page_ms("no such words", NEWEST) for _ in range(PAGES)], 0.5),
    }


def _with_tokens(store: Path, workflow: str | None, skipped: list[Skipped]) -> Iterator[AnyRun]:
    """Samples and their tokens, as read by a training that learns from every completion."""
    for run in iterate_samples(store, workflow, skipped):
        for step in run.steps:
            for call in step.calls:
                _ = call.prompt_ids, call.output_ids, call.logprobs
        yield run


def _read(store: Path, iterate: Reader, runs: int, outcome: Outcome) -> tuple[int, float, float]:
    """Read the steps of this many runs, whose rows are checked against their hashes; return the
    number of steps, seconds, and seconds of all processor cores together."""
    skipped: list[Skipped] = []
    began, cpu = time.perf_counter(), time.process_time()
    with pause_collection():
        records = islice(iterate(store, None, skipped), runs)
        steps = sum(len(record.steps) for record in records)
    wall, cpu = time.perf_counter() - began, time.process_time() - cpu
    outcome.violate(Violation("read", skip.reason, skip.where) for skip in skipped)
    return steps, wall, cpu


def _command_ms(store: Path, run: str) -> float:
    """Time `runtime runs show`, from its start to its end."""
    command = [sys.executable, "-m", "loopline.runtime", "runs", "show", run, "--json"]
    began = time.perf_counter()
    done = subprocess.run(
        [*command, "--store", str(store)], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise BenchError(f"`runtime runs show {run}` exited with {done.returncode}: {done.stderr}")
    return 1000 * (time.perf_counter() - began)


PROOF = Proof(
    name="store",
    title="a store of many recorded runs",
    options=StoreOptions,
    minutes=lambda options: options.runs / 70_000,
    run=run,
)
