"""How the cells go: a bar for each cell in work on a terminal, plain lines elsewhere, on stderr."""

from __future__ import annotations

import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from bench.glpft.plan import Cell
    from trainers.job_processes import Told

LINE_SECONDS = 20.0
"""Without a terminal: a line for each cell so often, at most."""


class CellProgress:
    """A context: it owns the bars."""

    def __init__(self, cells: int, left: int) -> None:
        from rich.console import Console

        self._console = Console(stderr=True)
        self._cells = cells
        self._done = cells - left
        self._began = time.monotonic()
        self._finished_here = 0
        self._told: dict[str, float] = {}
        self._phases: dict[str, tuple[str, float, int]] = {}
        self._bar: Progress | None = None
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            from rich.progress import BarColumn, Progress, TextColumn

            self._bar = Progress(
                TextColumn("{task.description}"), BarColumn(bar_width=20),
                TextColumn("{task.percentage:>3.0f} %"), TextColumn("{task.fields[said]}"),
                console=self._console,
            )  # fmt: skip
            self._bar.start()
            self._whole = self._bar.add_task(
                "cells", total=self._cells, completed=self._done, said=""
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def say(self, text: str) -> None:
        """A line of its own."""
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def told(self, cell: Cell, told: Told) -> None:
        """What a cell's process says."""
        name = cell.name
        if told.event == "finished":
            self._finish(name)
            return
        said = "  ".join(part for part in (told.said, self._eta(name, told)) if part)
        label = f"{name}: {told.event}"
        if self._bar is not None:
            if name not in self._tasks:
                self._tasks[name] = self._bar.add_task(label, total=told.total, said=said)
            self._bar.update(
                self._tasks[name],
                description=label, total=told.total, completed=told.done, said=said,
            )  # fmt: skip
        elif time.monotonic() - self._told.get(name, float("-inf")) >= LINE_SECONDS:
            self._told[name] = time.monotonic()
            self.say(f"{label} {told.done:,}/{told.total:,}  {said}".rstrip())

    def _finish(self, name: str) -> None:
        self._done += 1
        self._finished_here += 1
        pace = (time.monotonic() - self._began) / self._finished_here
        left = _minutes(pace * (self._cells - self._done))
        if self._bar is None:
            self.say(f"{name}: finished; {self._done} of {self._cells} cells, {left} left")
            return
        if name in self._tasks:
            self._bar.remove_task(self._tasks.pop(name))
        self._bar.update(self._whole, completed=self._done, said=f"{left} left")

    def _eta(self, name: str, told: Told) -> str:
        """By the pace of this phase in this process."""
        now = time.monotonic()
        phase, began, first = self._phases.get(name, ("", now, told.done))
        if phase != told.event:
            began, first = now, told.done
            self._phases[name] = (told.event, began, first)
        done = told.done - first
        if done <= 0:
            return ""
        speed = done / max(now - began, 1e-9)
        pace = f"{speed:.1f} runs/s  " if told.event == "playing" else ""
        return f"{pace}{_minutes((told.total - told.done) / speed)} left"


def _minutes(seconds: float) -> str:
    whole = round(seconds)
    return f"{whole // 60}:{whole % 60:02d}"
