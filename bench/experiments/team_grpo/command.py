"""`bench team-grpo`: trains the unfinished cells of the grid and shows the table."""

from __future__ import annotations

import json
from pathlib import Path

import typer

from loopline.bench.experiments.document import publish
from loopline.bench.experiments.harness import claim, conduct, run_cells
from loopline.bench.experiments.team_grpo.cells import TeamSettings, cells_of, read_result
from loopline.bench.experiments.team_grpo.report import TeamReport, document, report_of
from loopline.trainers.core.job_progress import JobProgress

FREE = {"seeds"}
"""Settings that may be extended in an existing folder: seeds."""


def measure(output: Path, settings: TeamSettings, *, jobs: int, as_json: bool) -> None:
    """Run the unfinished cells and print the table. Raises `BenchError`; SystemExit after
    Ctrl-C."""
    claim(output, settings, free=dict.fromkeys(FREE, True))
    report = conduct(output, lambda: run_grid(settings, output, jobs))
    publish(document(report), report, output)
    if as_json:
        typer.echo(json.dumps(report.model_dump(mode="json", exclude={"settings"})))


def run_grid(settings: TeamSettings, output: Path, jobs: int) -> TeamReport | None:
    """Run the unfinished cells; None if interrupted. Raises `TrainingError`."""
    with JobProgress("trainings") as progress:
        whole = run_cells(
            cells_of(settings), output, "team_grpo", jobs=jobs,
            finished=lambda cell: read_result(cell, output) is not None, progress=progress,
        )  # fmt: skip
    return report_of(settings, output) if whole else None
