"""Progress of a training, or of several (`job_progress`), on stderr: a bar for each part on a
terminal, plain lines otherwise."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Self

import typer

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


class ShownProgress:
    """Context manager that owns the progress bars."""

    def __init__(
        self,
        before: str,
        behind: str,
        *,
        visible: bool = True,
        remaining: bool = True,
        elapsed: bool = False,
    ) -> None:
        """`before` and `behind`: rich templates for the text around a bar, with the fields of its
        `task`, whose description is the part and whose field `said` is the message. Without
        `visible` there are no bars. `remaining` and `elapsed` add the remaining and the elapsed
        time."""
        self._before, self._behind = before, behind
        self._remaining, self._elapsed = remaining, elapsed
        self._seen = visible and sys.stderr.isatty()
        self._bars: Progress | None = None
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        if self._seen:
            from rich.console import Console
            from rich.progress import (
                BarColumn,
                Progress,
                TextColumn,
                TimeElapsedColumn,
                TimeRemainingColumn,
            )

            self._bars = Progress(
                # A name in brackets is not markup.
                TextColumn(self._before, markup=False), BarColumn(),
                TextColumn(self._behind, markup=False),
                *((TimeRemainingColumn(),) if self._remaining else ()),
                *((TimeElapsedColumn(),) if self._elapsed else ()),
                console=Console(stderr=True),
            )  # fmt: skip
            self._bars.start()
        return self

    def __exit__(self, *raised: object) -> None:
        if self._bars is not None:
            self._bars.stop()

    def bar(self, part: str, count: int, total: int | None, message: str = "") -> None:
        """Show the progress of a part; does nothing without bars. Without a total the bar keeps the
        last one."""
        if self._bars is None:
            return
        if part not in self._tasks:
            self._tasks[part] = self._bars.add_task(part, total=total, said=message)
        self._bars.update(
            self._tasks[part], completed=count if total else None, total=total, said=message
        )

    def without_bar(self, part: str) -> None:
        """Remove the bar of a finished part."""
        if self._bars is not None and part in self._tasks:
            self._bars.remove_task(self._tasks.pop(part))

    def line(self, text: str) -> None:
        """Print a line if there are no bars."""
        if self._bars is None:
            typer.echo(text, err=True)

    def say(self, text: str) -> None:
        """Print a line, above the bars if there are any."""
        if self._bars is None:
            typer.echo(text, err=True)
        else:
            self._bars.console.print(text, markup=False, highlight=False, soft_wrap=True)
