"""`python -m loopline.bench.experiments.worker OUTPUT EXPERIMENT`: a process that runs one cell on
one core, with `run_job` of `experiments/EXPERIMENT/cell.py`.

See `loopline.trainers.core.job_processes`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from loopline.trainers.core.job_processes import JobLine, serve_jobs


def _work(output: Path, job: str, tell: Callable[[JobLine], None]) -> str:
    cell = import_module(f"loopline.bench.experiments.{sys.argv[2]}.cell")
    return cell.run_job(output, job, tell)


if __name__ == "__main__":
    serve_jobs(_work)
