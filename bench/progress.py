"""Progress of a benchmark: a live table on a terminal, plain lines elsewhere.

Everything goes to stderr, so scripts can read stdout.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

from loopline.bench.results import Result
from loopline.runtime.observe.cost_words import format_dollars
from loopline.runtime.terminal.tables import new_table

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live

    from loopline.bench.runner import Job

LINE_SECONDS = 10.0
"""Minimum seconds between two lines without a terminal."""

REFRESH_PER_SECOND = 4


class RunProgress:
    """Counts runs and shows the counts. A context manager that owns the live display."""

    def __init__(self, arms: Sequence[str]) -> None:
        from rich.console import Console

        self._console = Console(stderr=True)
        self._arms = tuple(arms)
        self._jobs = 0
        self._results: dict[str, list[bool]] = {arm: [] for arm in arms}
        self._tokens = dict.fromkeys(arms, 0)
        self._cost = dict.fromkeys(arms, 0)
        self._earlier = 0
        self._finished = 0
        self._flying: set[tuple[str, str]] = set()
        """(arm, question) of the runs in flight. A run that is resubmitted after an outage is
        counted once."""
        self._spent = 0
        self._spent_here = 0
        self._began = time.monotonic()
        self._last_line = float("-inf")
        self._live: Live | None = None
        self._stopping = ""

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            from rich.live import Live as RichLive

            self._live = RichLive(
                get_renderable=self.table,
                console=self._console,
                refresh_per_second=REFRESH_PER_SECOND,
            )
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Leave the terminal in its original state."""
        live, self._live = self._live, None
        if live is not None:
            live.stop()
        elif self._finished:
            self._line()

    def started(self, jobs: int, results: Sequence[Result], spent: int) -> None:
        self._jobs = jobs
        self._earlier = len(results)
        self._spent = spent
        self._began = time.monotonic()
        # The first line appears once there is something to report.
        self._last_line = self._began
        for result in results:
            self._count(result)
        if results:
            self.notice(f"{len(results):,} of {jobs:,} runs are stored already")

    def admitted(self, job: Job) -> None:
        self._flying.add(job.key)

    def finished(self, result: Result, micro_dollars: int) -> None:
        self._flying.discard((result.arm, result.item))
        self._finished += 1
        self._spent += micro_dollars
        self._spent_here += micro_dollars
        self._count(result)
        if self._live is None and time.monotonic() - self._last_line >= LINE_SECONDS:
            self._line()

    def notice(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def stopping(self, text: str) -> None:
        """Show this text below the table instead of the time left from now on; without a display,
        print it."""
        self._stopping = text
        if self._live is None:
            self.notice(text)

    @property
    def seconds_left(self) -> float | None:
        """Seconds left at the pace of this process; None before its first result."""
        remaining = self._jobs - self._earlier - self._finished
        if not self._finished:
            return None
        return (time.monotonic() - self._began) / self._finished * remaining

    @property
    def dollars_per_hour(self) -> float:
        """US dollars per hour at the pace of this process."""
        elapsed = max(1e-9, time.monotonic() - self._began)
        return self._spent_here / 1e6 / elapsed * 3600

    def table(self) -> RenderableType:
        """The live display."""
        from rich.console import Group
        from rich.text import Text

        money = ["cost"] if self._spent else []
        table = new_table("arm", "done", "right", "accuracy", "tokens/run", *money, words=("arm",))
        jobs_per_arm = self._jobs // max(1, len(self._arms))
        for arm in self._arms:
            right = self._results[arm]
            n = len(right)
            table.add_row(
                arm,
                f"{n:,}/{jobs_per_arm:,}",
                f"{sum(right):,}",
                f"{sum(right) / n:.1%}" if n else "–",
                f"{self._tokens[arm] / n:,.0f}" if n else "–",
                *([_dollars(self._cost[arm])] if self._spent else []),
            )
        return Group(
            table, Text(self._totals()), *([Text(self._stopping)] if self._stopping else [])
        )

    def _count(self, result: Result) -> None:
        self._results[result.arm].append(result.right)
        self._tokens[result.arm] += result.prompt_tokens + result.completion_tokens
        self._cost[result.arm] += result.micro_dollars

    def _totals(self) -> str:
        tokens = sum(self._tokens.values())
        parts = [
            f"{self._earlier + self._finished:,} of {self._jobs:,} runs",
            f"{len(self._flying):,} in flight",
            f"{tokens:,} tokens",
        ]
        if self._spent:
            parts += [
                format_dollars(self._spent / 1e6),
                f"{format_dollars(self.dollars_per_hour, 2)}/h",
            ]
        remaining = self.seconds_left
        if remaining and not self._stopping:
            parts.append(f"{_clock(remaining)} left")
        return ", ".join(parts)

    def _line(self) -> None:
        self._last_line = time.monotonic()
        accuracies = ", ".join(
            f"{arm} {sum(right)}/{len(right)} = {sum(right) / len(right):.1%}"
            for arm, right in self._results.items()
            if right
        )
        self.notice(f"{self._totals()}; {accuracies}")


def _dollars(micro_dollars: int) -> str:
    """Format an arm's cost so far; a dash if no call has a known cost."""
    return format_dollars(micro_dollars / 1e6) if micro_dollars else "–"


def _clock(seconds: float) -> str:
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    hours, rest = divmod(whole, 3600)
    return f"{hours}:{rest // 60:02d} h" if hours else f"{rest // 60}:{rest % 60:02d} min"
