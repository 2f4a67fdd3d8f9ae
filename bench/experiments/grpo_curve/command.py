"""`bench grpo-curve`: from the settings to the verdict."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import structlog
import typer

from loopline.bench.errors import BenchError
from loopline.bench.experiments.document import publish
from loopline.bench.experiments.grpo_curve.figures import CurveReport, report_of
from loopline.bench.experiments.grpo_curve.loops import (
    LoopResult,
    loops_of,
    read_result,
    run_loop,
    run_warm_start,
    warm_start_of,
)
from loopline.bench.experiments.grpo_curve.report import document, last_line
from loopline.bench.experiments.grpo_curve.settings import CurveSettings
from loopline.bench.experiments.harness import conduct
from loopline.runtime.errors import EXIT_FAILED
from loopline.trainers.core.job_processes import Job, JobLine
from loopline.trainers.core.job_progress import JobProgress
from loopline.trainers.errors import TrainingError
from loopline.trainers.grpo.arms.folder import claim, track_seconds
from loopline.trainers.grpo.arms.results import read_result as read_arm


def measure(output: Path, settings: CurveSettings, *, as_json: bool) -> None:
    """Run the unfinished loops and print the result; exit with 1 unless the attacked curve is
    within the spread, every loop rises, and no history has a violation. Raises `BenchError`;
    SystemExit after Ctrl-C."""
    output = output.resolve()
    # The client survives every outage; reporting each one would bury the progress.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    try:
        claim(output, settings, more_seeds=True)
    except TrainingError as error:
        raise BenchError(str(error)) from error
    report = conduct(output, lambda: run_loops(output, settings))
    publish(document(report), report, output)
    if as_json:
        typer.echo(json.dumps(last_line(report)))
    if not report.passed:
        raise typer.Exit(EXIT_FAILED)


def run_loops(output: Path, settings: CurveSettings) -> CurveReport:
    """Run the unfinished warm start and loops one after another, so that each has the machine to
    itself. Raises `BenchError`, `TrainingError`; KeyboardInterrupt after Ctrl-C."""
    warm, loops = warm_start_of(settings), loops_of(settings)
    remaining: list[Job] = [loop for loop in loops if read_result(loop, output) is None]
    if read_arm(warm.folder(output)) is None:
        remaining.append(warm)
    with track_seconds(output) as seconds, JobProgress("trainings") as progress:
        progress.watch(1 + len(loops), len(remaining))

        def finished(job: Job, solved: int) -> None:
            if job in remaining:
                message = f"{solved:,} of {settings.held_out:,} held-out puzzles solved"
                progress.tell(job, JobLine(event="finished", message=message))

        start = run_warm_start(settings, output, partial(progress.tell, warm))
        finished(warm, start.solved)
        results: list[LoopResult] = []
        for loop in loops:
            results.append(run_loop(loop, settings, output, partial(progress.tell, loop)))
            finished(loop, results[-1].looks[-1].solved)
        return report_of(settings, results, seconds() / 60)
