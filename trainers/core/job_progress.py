"""Progress of jobs on stderr: a bar for each running job on a terminal, plain lines otherwise."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from loopline.trainers.core.training_progress import ShownProgress

if TYPE_CHECKING:
    from collections.abc import Callable

    from loopline.trainers.core.job_processes import Job, JobLine

LINE_SECONDS = 10.0
"""Minimum seconds between two lines about a job, without a terminal."""


class JobProgress(ShownProgress):
    """Context manager that owns the bars: one for all jobs, and one for each running job."""

    def __init__(self, things: str) -> None:
        """`things`: the plural noun for the jobs."""
        super().__init__(
            "{task.description}", "{task.percentage:>3.0f} % {task.fields[said]}",
            remaining=False, elapsed=True,
        )  # fmt: skip
        self._things = things
        self._pace = _Pace()
        self._line_times: dict[str, float] = {}

    def watch(self, jobs: int, remaining: int) -> Callable[[Job, JobLine], None]:
        """A callback for lines about the jobs, of which `remaining` are unfinished. A later call
        corrects both numbers."""
        self._pace.expect(jobs, remaining)
        self._whole()
        return self.tell

    def tell(self, job: Job, event: JobLine) -> None:
        """Show a line from the process of a job."""
        name = job.name
        self._pace.tell(name, event)
        remaining = self._pace.left()
        if event.event == "finished":
            self.say(
                f"{name}: {event.message or 'finished'} "
                f"({self._pace.done} of {self._pace.jobs} {self._things}{remaining})"
            )
            self.without_bar(name)
        else:
            self.bar(name, event.done, event.total or None, f"{event.event}: {event.message}")
            if time.monotonic() - self._line_times.get(name, float("-inf")) >= LINE_SECONDS:
                self._line_times[name] = time.monotonic()
                share = f"{event.done / event.total:.0%}, " if event.total else ""
                self.line(f"{name}, {event.event}: {share}{event.message}{remaining}")
        self._whole()

    def _whole(self) -> None:
        self.bar(
            self._things, self._pace.done, self._pace.jobs, self._pace.left().removeprefix("; ")
        )


class _Pace:
    """Counts finished jobs, and running ones by their share, and estimates how long the others
    take: as long as these on average. The short work after a job's training is counted with it."""

    def __init__(self) -> None:
        self.jobs = 0
        self.done = 0
        self._progress = 0.0
        self._began = time.monotonic()
        self._running: dict[str, float] = {}
        self._first: dict[str, float] = {}

    def expect(self, jobs: int, remaining: int) -> None:
        self.jobs, self.done = jobs, jobs - remaining

    def tell(self, name: str, event: JobLine) -> None:
        if event.event == "finished":
            self.done += 1
            self._progress += 1 - self._first.pop(name, 0.0)
            self._running.pop(name, None)
        elif event.event == "training" and event.total:
            share = event.done / event.total
            # Progress of a job from an earlier part took none of this time.
            self._first.setdefault(name, share)
            self._running[name] = share

    def left(self) -> str:
        """`; about 12 min left`; empty while there is no estimate."""
        progress = self._progress + sum(
            now - self._first[name] for name, now in self._running.items()
        )
        wanted = self.jobs - self.done - sum(self._running.values())
        if progress <= 0:
            return ""
        minutes = (time.monotonic() - self._began) / progress * wanted / 60
        return f"; about {minutes:,.0f} min left"
