"""The command `train grpo demo`."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import typer

from loopline.trainers.core.interruption import exit_on_interrupt
from loopline.trainers.core.output_folder import state_of_folder

if TYPE_CHECKING:
    from loopline.trainers.grpo.demo.settings import DemoOptions

JOBS = 2
"""Arms at a time: the demonstration is made for two cores."""


def preview(options: DemoOptions) -> list[str]:
    """The plan of the demonstration, which `--dry-run` prints."""
    from loopline.trainers.grpo.arms.folder import REPORT
    from loopline.trainers.grpo.arms.settings import SETTINGS

    return [
        "plays Plan-Path from random weights on the CPU, with fixed settings: about six minutes",
        state_of_folder(options.output, SETTINGS, None, REPORT, restart=options.restart),
    ]


def demo(options: DemoOptions) -> None:
    """Does AT-GRPO learn anything? From scratch, on a CPU, in minutes.

    For each of three seeds, a model with random weights imitates a weak team, then learns by
    AT-GRPO, or by further imitation with the same compute; all are measured on the same unseen
    puzzles. After a crash or Ctrl-C, run it again to continue.
    """
    from rich.console import Console

    from loopline.trainers.core.job_progress import JobProgress
    from loopline.trainers.core.output_folder import lock_output
    from loopline.trainers.grpo.demo.pipeline import run
    from loopline.trainers.grpo.demo.report import (
        behaviour,
        compute_table,
        conclusion,
        findings_table,
        last_line,
    )
    from loopline.trainers.grpo.demo.settings import DemoSettings

    output = options.output
    with exit_on_interrupt(), lock_output(output), JobProgress("arms") as progress:
        report = run(
            DemoSettings(),
            output,
            jobs=JOBS,
            restart=options.restart,
            watcher=progress.watch,
            trackers=options.trackers,
        )
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 140)
    console.print(findings_table(report))
    console.print(compute_table(report))
    for line in (*behaviour(report), *conclusion(report)):
        typer.echo(line)
    typer.echo(f"models, curves and report.json in {output}")
    if options.as_json:
        typer.echo(json.dumps(last_line(report)))
