"""`bench grpo`: trains the unfinished arms of the grid and shows the table."""

from __future__ import annotations

import json
from math import fsum
from pathlib import Path

import typer

from loopline.agents.environments.puzzle_splits import Split
from loopline.agents.records import Record
from loopline.bench.errors import BenchError
from loopline.bench.experiments.document import publish
from loopline.bench.experiments.grpo.figures import GrpoReport, report_of
from loopline.bench.experiments.grpo.grid import GrpoGrid, with_dependencies
from loopline.bench.experiments.grpo.report import document, last_line
from loopline.bench.experiments.grpo.tables import published_results
from loopline.bench.experiments.grpo.trials import (
    Trial,
    choose_tunings,
    lower_setting_hint,
    trial_of,
)
from loopline.bench.experiments.harness import conduct
from loopline.trainers.core.job_progress import JobProgress
from loopline.trainers.core.json_records import find_record, write_record
from loopline.trainers.errors import TrainingError
from loopline.trainers.grpo.arms.folder import Watcher, claim, results_of, run_arms, track_seconds
from loopline.trainers.grpo.arms.results import Arm
from loopline.trainers.grpo.arms.settings import ArmSettings

BASELINES = "baselines.json"


class ByHand(Record):
    """Held-out puzzles solved by hand-written players."""

    solved: dict[str, int]


def measure(grid: GrpoGrid, *, as_json: bool) -> None:
    """Run the unfinished arms and print the table. Raises `BenchError`; SystemExit after Ctrl-C."""
    _require_puzzles(grid)
    try:
        claim(grid.output, grid.settings, more_seeds=True)
    except TrainingError as error:
        raise BenchError(str(error)) from error
    report = conduct(grid.output, lambda: _run_grid(grid))
    publish(document(report), report, grid.output)
    if as_json:
        typer.echo(json.dumps(last_line(report)))


def _run_grid(grid: GrpoGrid) -> GrpoReport | None:
    """Run the grid and return its report; None if interrupted."""
    with track_seconds(grid.output) as seconds:
        by_hand = _by_hand(grid.output, grid.settings)
        training = _train_arms(grid)
        if training is None:
            return None
        trials, arms = training
        trained_arms = with_dependencies([*grid.trials, *arms])
        every = results_of(trained_arms, grid.output)
        stopped = {
            arm.name: f"{arm_result.stopped}. {lower_setting_hint(arm)}"
            for arm, arm_result in zip(trained_arms, every, strict=True)
            if arm_result.stopped
        }
        name = grid.settings.game.name
        return report_of(
            grid.settings, results_of(arms, grid.output), by_hand.solved, published_results(name),
            seconds() / 60, cpu_minutes=fsum(arm_result.cpu_seconds for arm_result in every) / 60,
            trials=trials, stopped=stopped,
        )  # fmt: skip


def _train_arms(grid: GrpoGrid) -> tuple[tuple[Trial, ...], list[Arm]] | None:
    """Run the trials, then the table's arms with the tunings chosen by them; None if
    interrupted."""
    with JobProgress("trainings") as progress:

        def watch_all(jobs: int, remaining: int) -> Watcher:
            return progress.watch(jobs + grid.later_minimum, remaining + grid.later_minimum)

        if not run_arms(grid.first, grid.output, jobs=grid.jobs, watcher=watch_all):
            return None
        trials = tuple(map(trial_of, results_of(grid.trials, grid.output)))
        arms = grid.arms(choose_tunings(trials))
        every = with_dependencies([*grid.first, *arms])
        if not run_arms(every, grid.output, jobs=grid.jobs, watcher=progress.watch):
            return None
    return trials, arms


def _require_puzzles(grid: GrpoGrid) -> None:
    """Check before the folder is claimed that there are enough held-out puzzles. Raises
    `BenchError`."""
    settings = grid.settings
    if (grid.output / BASELINES).exists():
        return
    try:
        settings.game.tables(Split.TEST, settings.test_seed, settings.held_out)
    except ValueError as error:
        raise BenchError(f"--held-out {settings.held_out}: {error}") from error


def _by_hand(output: Path, settings: ArmSettings) -> ByHand:
    path = output / BASELINES
    record = find_record(path, ByHand, f"remove {path}, then run the same command again")
    if record is not None:
        return record
    record = ByHand(solved=settings.game.baselines(settings.test_seed, settings.held_out))
    write_record(path, record)
    return record
