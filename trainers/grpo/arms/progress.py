"""How the arms go: a bar for each arm in work on a terminal, plain lines elsewhere, on stderr."""

from __future__ import annotations

import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from trainers.grpo.arms.folder import Watcher
    from trainers.grpo.arms.results import Arm
    from trainers.job_processes import Told

LINE_SECONDS = 10.0
"""Without a terminal: a line for each arm so often, at most."""


class ArmProgress:
    """A context: it owns the bars."""

    def __init__(self) -> None:
        from rich.console import Console

        self._console = Console(stderr=True)
        self._pace = _Pace(0, 0)
        self._told: dict[Arm, float] = {}
        self._bar: Progress | None = None
        self._tasks: dict[Arm, TaskID] = {}

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

            self._bar = Progress(
                TextColumn("{task.description}"), BarColumn(bar_width=20),
                TextColumn("{task.percentage:>3.0f} %"), TimeElapsedColumn(),
                TextColumn("{task.fields[said]}", markup=False), console=self._console,
            )  # fmt: skip
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def watch(self, arms: int, left: int) -> Watcher:
        """Who is told, where so many arms are left of all."""
        self._pace = _Pace(arms, left)
        if self._bar is not None:
            done = self._pace.done
            self._whole = self._bar.add_task("arms", total=arms, completed=done, said="")
        return self._tell

    def _tell(self, arm: Arm, told: Told) -> None:
        self._pace.tell(arm, told)
        left = self._pace.left()
        if told.event == "finished":
            self._say(f"{arm.name}: {told.said} ({self._pace.said()}{left})")
            if self._bar is not None:
                if arm in self._tasks:
                    self._bar.remove_task(self._tasks.pop(arm))
                self._bar.update(self._whole, completed=self._pace.done)
        elif self._bar is not None:
            if arm not in self._tasks:
                self._tasks[arm] = self._bar.add_task(arm.name, total=None, said=told.said)
            task = self._tasks[arm]
            if told.total:
                self._bar.update(task, completed=told.done, total=told.total)
            self._bar.update(task, said=f"{told.event}: {told.said}")
        elif time.monotonic() - self._told.get(arm, float("-inf")) >= LINE_SECONDS:
            self._told[arm] = time.monotonic()
            share = f"{told.done / told.total:.0%}, " if told.total else ""
            self._say(f"{arm.name}, {told.event}: {share}{told.said}{left}")
        if self._bar is not None:
            self._bar.update(self._whole, said=left.removeprefix("; "))

    def _say(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


class _Pace:
    """How many arms are done, those in work by their share, and how long the others may take: as
    long as these in the mean."""

    def __init__(self, arms: int, left: int) -> None:
        self._arms = arms
        self.done = arms - left
        self._here = 0.0
        self._began = time.monotonic()
        self._in_work: dict[Arm, float] = {}
        self._first: dict[Arm, float] = {}

    def tell(self, arm: Arm, told: Told) -> None:
        if told.event == "finished":
            self.done += 1
            self._here += 1 - self._first.pop(arm, 0.0)
            self._in_work.pop(arm, None)
        elif told.total:
            share = told.done / told.total
            # What an arm had done in an earlier part was not done in this time.
            self._first.setdefault(arm, share)
            self._in_work[arm] = share

    def said(self) -> str:
        return f"{self.done} of {self._arms} arms"

    def left(self) -> str:
        """`; about 12 min left`; empty while nothing is known."""
        made = self._here + sum(now - self._first[arm] for arm, now in self._in_work.items())
        wanted = self._arms - self.done - sum(self._in_work.values())
        if made <= 0:
            return ""
        minutes = (time.monotonic() - self._began) / made * wanted / 60
        return f"; about {minutes:,.0f} min left"
