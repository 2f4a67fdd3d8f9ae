"""`python -m loopline.bench.experiments.staleness.worker OUTPUT`: a process that does one cell, on
one core.

See `loopline.trainers.core.job_processes`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from loopline.bench.errors import BenchError
from loopline.bench.experiments.staleness.plan import SETTINGS, Cell, StalenessSettings
from loopline.trainers.core.job_processes import Told, serve_jobs


def _work(output: Path, job: str, tell: Callable[[Told], None]) -> None:
    import torch

    from loopline.agents.errors import AgentError
    from loopline.bench.experiments.staleness.cell import work
    from loopline.trainers.core.memory import keep_freed_memory
    from loopline.trainers.errors import TrainingError
    from loopline.workers.engines.protocol import EngineError

    keep_freed_memory()
    torch.set_num_threads(1)
    try:
        settings = StalenessSettings.model_validate_json((output / SETTINGS).read_bytes())
        result = work(Cell.model_validate_json(job), output, settings, tell)
        said = f"{result.solved:,} of {len(result.outcomes):,} solved" if result else ""
        tell(Told(event="finished", said=said))
    except (BenchError, TrainingError, EngineError, AgentError) as error:
        tell(Told(event="failed", said=str(error)))
        raise SystemExit(1) from None


if __name__ == "__main__":
    serve_jobs(_work)
