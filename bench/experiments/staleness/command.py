"""`bench staleness`: trains the unfinished cells of the grid and shows the table."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import typer

from loopline.bench.errors import UsageError
from loopline.bench.experiments.document import publish
from loopline.bench.experiments.harness import claim, conduct, run_cells
from loopline.bench.experiments.staleness.cells import (
    CORRECTIONS,
    Cell,
    Correction,
    StalenessSettings,
    cell_is_finished,
    cells_of,
)
from loopline.bench.experiments.staleness.figures import StalenessReport, report_of
from loopline.bench.experiments.staleness.report import document
from loopline.trainers.core.job_progress import JobProgress

FREE = {"demo": {"seeds"}}
"""Settings that may be extended in an existing folder: seeds."""


def measure(
    output: Path,
    settings: StalenessSettings,
    ages: tuple[int, ...],
    corrections: tuple[Correction, ...],
    *,
    jobs: int,
    as_json: bool,
) -> None:
    """Run the unfinished cells and print the table. Raises `BenchError`; SystemExit after
    Ctrl-C."""
    claim(output, settings, free=FREE)
    cells = cells_of(settings, ages, corrections)
    report = conduct(output, lambda: run_grid(settings, cells, output, jobs))
    publish(document(report), report, output)
    if as_json:
        typer.echo(json.dumps(report.model_dump(mode="json", exclude={"settings"})))


def run_grid(
    settings: StalenessSettings, cells: Sequence[Cell], output: Path, jobs: int
) -> StalenessReport | None:
    """Run the unfinished cells; None if interrupted. Raises `TrainingError`."""
    is_finished = partial(cell_is_finished, output=output)
    with JobProgress("trainings") as progress:
        whole = run_cells(
            cells, output, "staleness", jobs=jobs, finished=is_finished, progress=progress
        )
    return report_of(settings, cells, output) if whole else None


def parse_ages(text: str) -> tuple[int, ...]:
    """Parse comma-separated ages. Raises `UsageError`."""
    try:
        ages = tuple(sorted({int(part) for part in text.split(",")}))
    except ValueError as error:
        raise UsageError(f"--ages {text}: expected whole numbers, such as 0,4,16") from error
    if ages[0] < 0:
        raise UsageError(f"--ages {text}: an age can't be negative")
    return ages


def parse_corrections(text: str) -> tuple[Correction, ...]:
    """Parse comma-separated corrections; `decoupled` means `token`. Raises `UsageError`."""
    wanted = {"token" if part == "decoupled" else part for part in text.split(",")}
    unknown = sorted(wanted - set(CORRECTIONS))
    if unknown:
        correction_names = ", ".join(
            "decoupled" if correction == "token" else correction for correction in CORRECTIONS
        )
        raise UsageError(
            f"--corrections: there is no correction {unknown[0]!r}; there are: {correction_names}"
        )
    return tuple(correction for correction in CORRECTIONS if correction in wanted)
