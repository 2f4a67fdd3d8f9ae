"""`python -m bench.glpft.worker OUTPUT`: a process that does one cell after the other, on one core.

It reads cells from stdin, a line of JSON each, and writes what becomes of them to stdout, a line of
JSON each; it ends with its stdin. SIGINT lets it stop where it can be gone on from.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from bench.errors import BenchError
from bench.glpft.plan import SETTINGS, Cell, Common, data_folder, items_of
from trainers.job_processes import Told, serve_jobs


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
    serve_jobs(_work)
