"""`bench glpft`: trains the unfinished cells of the grid and shows the table."""

from __future__ import annotations

import json
from functools import partial

import typer

from loopline.agents.roles.umi.settings import UmiOptions
from loopline.bench.experiments.glpft.grid import (
    OPTIONS,
    Cell,
    GlpftGrid,
    cell_is_finished,
    data_folder,
)
from loopline.bench.experiments.harness import conduct, run_cells
from loopline.trainers.core.job_progress import JobProgress
from loopline.trainers.data.datasets import build
from loopline.trainers.data.datasets import write as write_data
from loopline.trainers.data.sources import from_worlds


def measure(grid: GlpftGrid, *, as_json: bool) -> None:
    """Run the unfinished cells and print the table. Raises `BenchError`; SystemExit after
    Ctrl-C."""
    grid.claim()
    conduct(grid.output, partial(_run_grid, grid))
    # These modules read the trainers' reports, and therefore import torch.
    from loopline.bench.experiments.document import publish
    from loopline.bench.experiments.glpft.figures import figures_of
    from loopline.bench.experiments.glpft.report import document, report_of

    sizes = figures_of(grid)
    report = report_of(grid, sizes)
    publish(document(grid, sizes), report, grid.output)
    if as_json:
        typer.echo(json.dumps(report.model_dump(mode="json")))


def _run_grid(grid: GlpftGrid) -> bool | None:
    """Run the unfinished cells and return True; None if interrupted."""

    def is_finished(cell: Cell) -> bool:
        return cell_is_finished(cell.folder(grid.output), grid.items)

    if all(map(is_finished, grid.cells)):
        return True
    with JobProgress("cells") as progress:
        _make_data(grid, progress)
        whole = run_cells(
            grid.cells, grid.output, "glpft", jobs=grid.jobs, finished=is_finished,
            progress=progress,
        )  # fmt: skip
    return whole or None


def _make_data(grid: GlpftGrid, progress: JobProgress) -> None:
    """Create the training instructions as `train data --worlds train` does."""
    folder, common = data_folder(grid.output), grid.common
    if folder.exists():
        return
    progress.say(f"making {common.instructions:,} training instructions…")
    source = from_worlds("train", common.instructions, common.data_seed)
    write_data(build([source], UmiOptions.model_validate(OPTIONS)), folder)
