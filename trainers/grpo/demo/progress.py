"""How the arms go: a bar for each arm in work on a terminal, plain lines elsewhere, on stderr."""

from __future__ import annotations

import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from trainers.grpo.demo.processes import Watcher
    from trainers.grpo.demo.results import Arm
    from trainers.grpo.demo.worker import Told

LINE_SECONDS = 10.0
"""Without a terminal: a line for each arm so often, at most."""


class ArmProgress:
    """A context: it owns the bars."""

    def __init__(self) -> None:
        from rich.console import Console

        self._console = Console(stderr=True)
        self._arms = self._done = 0
        self._told: dict[Arm, float] = {}
        self._bar: Progress | None = None
        self._tasks: dict[Arm, TaskID] = {}

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

            self._bar = Progress(
                TextColumn("{task.description}"), BarColumn(bar_width=20),
                TextColumn("{task.percentage:>3.0f} %"), TimeElapsedColumn(),
                TextColumn("{task.fields[said]}"), console=self._console,
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
        self._arms, self._done = arms, arms - left
        if self._bar is not None:
            self._whole = self._bar.add_task("arms", total=arms, completed=self._done, said="")
        return self._tell

    def _tell(self, arm: Arm, told: Told) -> None:
        label = f"seed {arm.seed}, {arm.name}"
        if told.event == "finished":
            self._done += 1
            self._console.print(
                f"{label}: {told.said} ({self._done} of {self._arms} arms)",
                markup=False, highlight=False, soft_wrap=True,
            )  # fmt: skip
            if self._bar is not None:
                if arm in self._tasks:
                    self._bar.remove_task(self._tasks.pop(arm))
                self._bar.update(self._whole, completed=self._done)
        elif self._bar is not None:
            if arm not in self._tasks:
                self._tasks[arm] = self._bar.add_task(label, total=1.0, said=told.said)
            self._bar.update(self._tasks[arm], completed=told.share, said=told.said)
        elif time.monotonic() - self._told.get(arm, float("-inf")) >= LINE_SECONDS:
            self._told[arm] = time.monotonic()
            self._console.print(
                f"{label}: {told.share:.0%}, {told.said}",
                markup=False, highlight=False, soft_wrap=True,
            )  # fmt: skip
