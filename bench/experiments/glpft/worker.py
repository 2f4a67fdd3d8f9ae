"""`python -m loopline.bench.experiments.glpft.worker OUTPUT`: a process that does one cell, on one
core.

See `loopline.trainers.core.job_processes`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from loopline.bench.errors import BenchError
from loopline.bench.experiments.glpft.plan import SETTINGS, Cell, Common, data_folder, items_of
from loopline.trainers.core.job_processes import Told, serve_jobs


def _work(output: Path, job: str, tell: Callable[[Told], None]) -> None:
    from loopline.agents.errors import AgentError
    from loopline.bench.experiments.glpft.cell import Done, work
    from loopline.trainers.data.datasets import read
    from loopline.trainers.errors import TrainingError
    from loopline.workers.engines.protocol import EngineError

    def at(done: Done) -> None:
        tell(Told(event=done.phase, done=done.done, total=done.total, said=done.said))

    try:
        data = read(data_folder(output))
        common = Common.model_validate_json((output / SETTINGS).read_bytes())
        items = items_of(common)
        cell = Cell.model_validate_json(job)
        work(cell, cell.folder(output), data, items, at, cell.beside(output))
        tell(Told(event="finished"))
    except (BenchError, TrainingError, EngineError, AgentError) as error:
        tell(Told(event="failed", said=str(error)))
        raise SystemExit(1) from None


if __name__ == "__main__":
    serve_jobs(_work)
