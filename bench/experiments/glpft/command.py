"""`bench glpft`: from the options to the table."""

from __future__ import annotations

import asyncio
import json
import sys

import typer
from rich.console import Console

from loopline.agents.roles.umi.settings import UmiOptions
from loopline.bench.errors import BenchError
from loopline.bench.experiments.glpft.plan import OPTIONS, Plan, data_folder, finished
from loopline.runtime.errors import EXIT_INTERRUPTED
from loopline.trainers.core.job_processes import do_jobs
from loopline.trainers.core.job_progress import JobProgress
from loopline.trainers.core.output_lock import locked
from loopline.trainers.data.datasets import build
from loopline.trainers.data.datasets import write as write_data
from loopline.trainers.data.sources import from_worlds
from loopline.trainers.errors import TrainingError

WORKER = "loopline.bench.experiments.glpft.worker"


def measure(plan: Plan, *, as_json: bool) -> None:
    """Do what is not done, print the table. Raises `BenchError`; SystemExit after Ctrl-C."""
    plan.claim()
    try:
        with locked(plan.output):
            done = _work(plan)
    except TrainingError as error:
        raise BenchError(str(error)) from error
    except KeyboardInterrupt:
        done = False
    if not done:
        print("stopped; go on with the same command", file=sys.stderr)
        raise SystemExit(EXIT_INTERRUPTED)
    # These know the trainers' reports, and so import torch.
    from loopline.bench.experiments.glpft.figures import figures_of
    from loopline.bench.experiments.glpft.report import show, write

    sizes = figures_of(plan)
    found = write(plan, sizes)
    show(plan, sizes, Console(width=None if sys.stdout.isatty() else 140))
    if as_json:
        typer.echo(json.dumps(found))


def _work(plan: Plan) -> bool:
    """False if it was stopped."""
    left = [cell for cell in plan.cells if not finished(cell.folder(plan.output), plan.items)]
    if not left:
        return True
    with JobProgress("cells") as progress:
        _make_data(plan, progress)
        told = progress.watch(len(plan.cells), len(left))
        work = do_jobs(left, WORKER, plan.output, plan.jobs, told)
        return asyncio.run(work)


def _make_data(plan: Plan, progress: JobProgress) -> None:
    """The training instructions, as `train data --worlds train` makes them."""
    folder, common = data_folder(plan.output), plan.common
    if folder.exists():
        return
    progress.say(f"making {common.instructions:,} training instructions…")
    source = from_worlds("train", common.instructions, common.data_seed)
    write_data(build([source], UmiOptions.model_validate(OPTIONS)), folder)
