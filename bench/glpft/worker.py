"""`python -m bench.glpft.worker OUTPUT`: a process that does one cell after the other, on one core.

It reads cells from stdin, a line of JSON each, and writes what becomes of them to stdout, a line of
JSON each; it ends with its stdin. SIGINT lets it stop where it can be gone on from.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from bench.errors import EXIT_INTERRUPTED, BenchError
from bench.glpft.plan import SETTINGS, Cell, Common, data_folder, items_of


class Told(BaseModel):
    """One line of stdout, about the cell in work."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    event: Literal["training", "playing", "finished", "failed"]
    done: int = 0
    total: int = 0
    said: str = ""


def main() -> None:
    """See the module."""
    # What libraries print must not stand among the lines that are read.
    lines = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def tell(told: Told) -> None:
        lines.write(told.model_dump_json() + "\n")

    try:
        _work(Path(sys.argv[1]), tell)
    except KeyboardInterrupt:
        raise SystemExit(EXIT_INTERRUPTED) from None


def _work(output: Path, tell: Callable[[Told], None]) -> None:
    from agents.errors import AgentError
    from bench.glpft.cell import Done, work
    from trainers.data.datasets import read
    from trainers.errors import TrainingError
    from workers.engines.protocol import EngineError

    def at(done: Done) -> None:
        tell(Told(event=done.phase, done=done.done, total=done.total, said=done.said))

    try:
        data = read(data_folder(output))
        common = Common.model_validate_json((output / SETTINGS).read_bytes())
        items = items_of(common)
        for line in sys.stdin:
            cell = Cell.model_validate_json(line)
            work(cell, cell.folder(output), data, items, at)
            tell(Told(event="finished"))
    except (BenchError, TrainingError, EngineError, AgentError) as error:
        tell(Told(event="failed", said=str(error)))
        raise SystemExit(1) from None


if __name__ == "__main__":
    main()
