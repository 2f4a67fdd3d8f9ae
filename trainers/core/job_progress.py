"""How jobs go: a bar for each one in work on a terminal, plain lines elsewhere, on stderr."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.progress import Progress, TaskID

    from loopline.trainers.core.job_processes import Job, Told

LINE_SECONDS = 10.0
"""Without a terminal: a line for each job so often, at most."""


class JobProgress:
    """A context: it owns the bars."""

    def __init__(self, things: str) -> None:
        """`things`: what the jobs are called, in the plural."""
        from rich.console import Console

        self._console = Console(stderr=True)
        self._things = things
        self._pace = _Pace()
        self._told: dict[str, float] = {}
        self._bar: Progress | None = None
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

            self._bar = Progress(
                TextColumn("{task.description}"), BarColumn(bar_width=20),
                TextColumn("{task.percentage:>3.0f} %"), TimeElapsedColumn(),
                TextColumn("{task.fields[said]}", markup=False), console=self._console,
            )  # fmt: skip
            self._bar.start()
            self._whole = self._bar.add_task(self._things, total=None, said="")
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def watch(self, jobs: int, left: int) -> Callable[[Job, Told], None]:
        """Who is told, where so many jobs are left of all; called again, it corrects the two."""
        self._pace.expect(jobs, left)
        if self._bar is not None:
            self._bar.update(self._whole, total=jobs, completed=self._pace.done)
        return self.tell

    def tell(self, job: Job, told: Told) -> None:
        """What the process of a job says."""
        name = job.name
        self._pace.tell(name, told)
        left = self._pace.left()
        if told.event == "finished":
            self.say(f"{name}: {told.said or 'finished'} ({self._pace.said(self._things)}{left})")
            if self._bar is not None:
                if name in self._tasks:
                    self._bar.remove_task(self._tasks.pop(name))
                self._bar.update(self._whole, completed=self._pace.done)
        elif self._bar is not None:
            if name not in self._tasks:
                self._tasks[name] = self._bar.add_task(name, total=None, said=told.said)
            task = self._tasks[name]
            if told.total:
                self._bar.update(task, completed=told.done, total=told.total)
            self._bar.update(task, said=f"{told.event}: {told.said}")
        elif time.monotonic() - self._told.get(name, float("-inf")) >= LINE_SECONDS:
            self._told[name] = time.monotonic()
            share = f"{told.done / told.total:.0%}, " if told.total else ""
            self.say(f"{name}, {told.event}: {share}{told.said}{left}")
        if self._bar is not None:
            self._bar.update(self._whole, said=left.removeprefix("; "))

    def say(self, text: str) -> None:
        """A line of its own."""
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


class _Pace:
    """How many jobs are done, those in work by their share, and how long the others may take: as
    long as these in the mean. What comes after a job's training is short beside it, and is counted
    with it."""

    def __init__(self) -> None:
        self._jobs = 0
        self.done = 0
        self._here = 0.0
        self._began = time.monotonic()
        self._in_work: dict[str, float] = {}
        self._first: dict[str, float] = {}

    def expect(self, jobs: int, left: int) -> None:
        self._jobs, self.done = jobs, jobs - left

    def tell(self, name: str, told: Told) -> None:
        if told.event == "finished":
            self.done += 1
            self._here += 1 - self._first.pop(name, 0.0)
            self._in_work.pop(name, None)
        elif told.event == "training" and told.total:
            share = told.done / told.total
            # What a job had done in an earlier part was not done in this time.
            self._first.setdefault(name, share)
            self._in_work[name] = share

    def said(self, things: str) -> str:
        return f"{self.done} of {self._jobs} {things}"

    def left(self) -> str:
        """`; about 12 min left`; empty while nothing is known."""
        made = self._here + sum(now - self._first[name] for name, now in self._in_work.items())
        wanted = self._jobs - self.done - sum(self._in_work.values())
        if made <= 0:
            return ""
        minutes = (time.monotonic() - self._began) / made * wanted / 60
        return f"; about {minutes:,.0f} min left"
