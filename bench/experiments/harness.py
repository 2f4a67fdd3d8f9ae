"""Runner of every grid of trainings: its folder, its cells in separate processes, and Ctrl-C.

A cell is one training with its measurement: a record with a name, a folder and the cells that it
needs. Finished cells are not repeated, so the same command resumes where it stopped.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

from pydantic import BaseModel

from loopline.agents.records import Record
from loopline.bench.errors import BenchError, OutputError, UsageError
from loopline.bench.statistics import (
    Interval,
    bootstrap_difference,
    pigeonhole_bootstrap,
    wilson,
)
from loopline.runtime.errors import EXIT_INTERRUPTED
from loopline.trainers.core.checkpoints import changed_settings, claimed_settings, require_unused
from loopline.trainers.core.job_processes import Job, run_jobs
from loopline.trainers.core.job_progress import JobProgress
from loopline.trainers.core.json_records import write_record
from loopline.trainers.core.output_folder import lock_output
from loopline.trainers.errors import TrainingError

WORKER = "loopline.bench.experiments.worker"
SETTINGS = "settings.json"
T = TypeVar("T")


class Cell(Job, Protocol):
    """One training of the grid."""

    @property
    def needs(self) -> Sequence[Any]:
        """Cells that must be finished first."""
        ...


CellT = TypeVar("CellT", bound=Cell)


Verdict = Literal["more", "less", "no difference found"]
"""Verdict on a difference, generalized to other seeds and items: whether its interval contains
zero."""


class Bounds(Record):
    """An estimate with its 95 % interval."""

    estimate: float
    low: float
    high: float

    @classmethod
    def of(cls, interval: Interval) -> Bounds:
        return cls(estimate=interval.estimate, low=interval.low, high=interval.high)

    @classmethod
    def paired(cls, first: Sequence[float], second: Sequence[float]) -> Bounds:
        """Return the mean of first minus second, item by item, with a bootstrap interval over
        items."""
        return cls.of(bootstrap_difference(first, second))

    @classmethod
    def of_seeds(cls, cells: Sequence[Sequence[float]], *, least: float) -> Bounds:
        """Return the mean of a table of seeds by items, with values from `least` to 1; for
        differences paired by seed and item, the mean difference. Seeds and items are resampled
        together (`pigeonhole_bootstrap`), and the interval is clipped to possible values. If all
        values are equal, its width comes from Wilson's interval for unseen items."""
        first = cells[0][0]
        if all(value == first for row in cells for value in row):
            different = wilson(0, len(cells[0])).high
            equal = (1 - different) * first
            return cls(estimate=first, low=equal + different * least, high=equal + different)
        drawn = pigeonhole_bootstrap(cells)
        return cls(estimate=drawn.estimate, low=max(least, drawn.low), high=min(1.0, drawn.high))

    @property
    def interval(self) -> Interval:
        return Interval(self.estimate, self.low, self.high)

    @property
    def verdict(self) -> Verdict:
        """Verdict on a difference."""
        return "more" if self.low > 0 else "less" if self.high < 0 else "no difference found"


def conduct(output: Path, work: Callable[[], T | None]) -> T:
    """Return the result of `work`, which is called with the folder locked. Raises `BenchError`, and
    SystemExit after Ctrl-C, which `work` signals by None or KeyboardInterrupt."""
    try:
        with lock_output(output):
            result = work()
    except TrainingError as error:
        raise BenchError(str(error)) from error
    except KeyboardInterrupt:
        result = None
    if result is None:
        print("stopped; run the same command to continue", file=sys.stderr)
        raise SystemExit(EXIT_INTERRUPTED)
    return result


def run_cells(
    cells: Sequence[CellT],
    output: Path,
    experiment: str,
    *,
    jobs: int,
    finished: Callable[[Any], bool],
    progress: JobProgress,
) -> bool:
    """Run the unfinished cells, `jobs` at a time, each after the cells that it needs; return False
    if interrupted. Raises `TrainingError`."""
    left = [cell for cell in cells if not finished(cell)]

    def ready(cell: CellT) -> bool:
        return all(map(finished, cell.needs))

    tell = progress.watch(len(cells), len(left))
    work = run_jobs(left, WORKER, output, jobs, tell, ready, arguments=(experiment,))
    return asyncio.run(work)


def claim(output: Path, settings: BaseModel, *, free: Mapping[str, Any] | None = None) -> None:
    """Claim a folder for these settings. `free`: fields, in the form of pydantic's `exclude`, that
    may differ from those in an existing folder. Raises `BenchError` if it belongs to another
    experiment."""
    path = output / SETTINGS
    try:
        if not path.exists():
            require_unused(output)
            output.mkdir(parents=True, exist_ok=True)
            write_record(path, settings)
            return
        earlier = claimed_settings(path, type(settings))
    except TrainingError as error:
        raise OutputError(str(error)) from error
    except OSError as error:
        raise OutputError(f"{output}: the folder can't be created: {error.strerror}") from error
    exclude: Any = free
    changed = changed_settings(
        earlier.model_dump(exclude=exclude), settings.model_dump(exclude=exclude)
    )
    if changed:
        raise OutputError(
            f"{output} was started with other settings: {', '.join(changed)}; use the same "
            "ones, or another folder"
        )


def parse_names(option: str, text: str, choices: Sequence[str] | None = None) -> list[str]:
    """Parse comma-separated names, each once. Raises `UsageError`, also for an unknown one."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts:
        raise UsageError(f"{option} is empty")
    for part in parts:
        if parts.count(part) > 1:
            raise UsageError(f"{option} lists {part!r} twice")
        if choices is not None and part not in choices:
            raise UsageError(f"{option}: there is no {part!r}; there are: {', '.join(choices)}")
    return parts
