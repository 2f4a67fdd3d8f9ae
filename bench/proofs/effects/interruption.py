"""A process that kills or pauses itself at a line of its own code."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any, Literal

How = Literal["kill", "stop"]


@dataclass(frozen=True, slots=True)
class Line:
    """A line of code."""

    file: str
    number: int


@dataclass(frozen=True, slots=True)
class Interruption:
    """SIGKILL or SIGSTOP when a line is about to run for the `occurrence`-th time."""

    line: Line
    occurrence: int
    how: How


class LineWatch:
    """Watches the lines of some files in the thread that installs it."""

    def __init__(
        self,
        files: Sequence[str],
        interruption: Interruption | None,
        journal: int,
        lines: Iterable[Line] = (),
    ) -> None:
        """Create a watch; `journal`: file descriptor that receives each line when it first runs,
        except these `lines`."""
        self._files = frozenset(files)
        self._interruption = interruption
        self._journal = journal
        self._lines = set(lines)
        self._count = 0

    def install(self) -> None:
        sys.settrace(self._enter)

    def _enter(self, frame: FrameType, event: str, argument: object) -> Any:
        return self._step if frame.f_code.co_filename in self._files else None

    def _step(self, frame: FrameType, event: str, argument: object) -> Any:
        if event == "line":
            self._reach(Line(frame.f_code.co_filename, frame.f_lineno))
        return self._step

    def _reach(self, line: Line) -> None:
        if line not in self._lines:
            self._lines.add(line)
            os.write(self._journal, f"{line.number} {line.file}\n".encode())
        wanted = self._interruption
        if wanted is None or line != wanted.line:
            return
        self._count += 1
        if self._count == wanted.occurrence:
            how = signal.SIGKILL if wanted.how == "kill" else signal.SIGSTOP
            os.kill(os.getpid(), how)


def read_lines(text: str) -> list[Line]:
    """Parse the reports of a watch, in the order in which the lines ran."""
    pairs = (row.split(" ", 1) for row in text.splitlines())
    return [Line(file, int(number)) for number, file in pairs]
