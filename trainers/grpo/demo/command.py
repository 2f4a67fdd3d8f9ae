"""`train grpo OUTPUT --demo`, as a user sees it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import typer

from loopline.trainers.core.interruption import stoppable

JOBS = 2
"""Arms at a time: the demonstration is made for two cores."""


def demonstrate(output: Path, *, restart: bool, as_json: bool) -> None:
    """Run the demonstration, or what is left of it, and print what was found."""
    from rich.console import Console

    from loopline.trainers.core.job_progress import JobProgress
    from loopline.trainers.core.output_lock import locked
    from loopline.trainers.grpo.demo.pipeline import run
    from loopline.trainers.grpo.demo.report import (
        behaviour,
        compute_table,
        conclusion,
        findings_table,
        last_line,
    )
    from loopline.trainers.grpo.demo.settings import DemoSettings

    with stoppable(), locked(output), JobProgress("arms") as progress:
        report = run(DemoSettings(), output, jobs=JOBS, restart=restart, watcher=progress.watch)
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 140)
    console.print(findings_table(report))
    console.print(compute_table(report))
    for line in (*behaviour(report), *conclusion(report)):
        typer.echo(line)
    typer.echo(f"models, curves and report.json in {output}")
    if as_json:
        typer.echo(json.dumps(last_line(report)))
