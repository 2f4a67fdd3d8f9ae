"""The append-only logs of a bench (`loopline.runtime.append_log`), with the bench's own errors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from loopline.bench.errors import OutputError
from loopline.runtime import append_log
from loopline.runtime.append_log import damaged_line_message, torn_notice

__all__ = ["AppendLog", "corrupt_line_error", "read_log", "torn_notice"]


class AppendLog(append_log.AppendLog):
    """Log in an output directory. Raises OutputError."""

    def __init__(self, path: Path, resume: str | None = None) -> None:
        """Create a log; `resume` is the command to run once there is room again (default: `bench
        resume`)."""
        super().__init__(path, resume=resume or f"bench resume {path.parent}", failure=OutputError)


def read_log(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Read a log as `loopline.runtime.append_log.read_log` does. Raises OutputError."""
    return append_log.read_log(path, OutputError)


def corrupt_line_error(path: Path, number: int, why: str) -> OutputError:
    """Return the error for a line that should have been whole."""
    return OutputError(damaged_line_message(path, number, why))
