"""`bench delegation-front`: runs the unfinished cells of the grid and shows the table."""

from __future__ import annotations

import json
from pathlib import Path

import typer

from loopline.bench.errors import UsageError
from loopline.bench.experiments.delegation_front.cells import (
    FrontSettings,
    cells_of,
    is_finished,
)
from loopline.bench.experiments.delegation_front.figures import FrontReport, report_of
from loopline.bench.experiments.delegation_front.report import document
from loopline.bench.experiments.document import publish
from loopline.bench.experiments.harness import claim, conduct, run_cells
from loopline.trainers.core.job_progress import JobProgress

FREE = {"seeds": True, "dollar_weights": True}
"""Settings that may be extended in an existing folder: seeds and weights."""


def measure(output: Path, settings: FrontSettings, *, jobs: int, as_json: bool) -> None:
    """Run the unfinished cells and print the table. Raises `BenchError`; SystemExit after
    Ctrl-C."""
    claim(output, settings, free=FREE)
    report = conduct(output, lambda: run_grid(settings, output, jobs))
    publish(document(report), report, output)
    if as_json:
        typer.echo(json.dumps(report.model_dump(mode="json", exclude={"settings"})))


def run_grid(settings: FrontSettings, output: Path, jobs: int) -> FrontReport | None:
    """Run the unfinished cells; None if interrupted. Raises `TrainingError`."""
    with JobProgress("cells") as progress:
        whole = run_cells(
            cells_of(settings), output, "delegation_front", jobs=jobs,
            finished=lambda cell: is_finished(cell, output), progress=progress,
        )  # fmt: skip
    return report_of(settings, output) if whole else None


def parse_weights(text: str) -> tuple[float, ...]:
    """Parse comma-separated weights, in order. Raises `UsageError`."""
    try:
        weights = tuple(sorted({float(part) for part in text.split(",")}))
    except ValueError as error:
        raise UsageError(f"--lambdas {text}: expected numbers, such as 0,100,1000") from error
    if not all(0 <= weight < float("inf") for weight in weights):
        raise UsageError(f"--lambdas {text}: each λ must be finite and at least 0")
    return weights
