"""`bench grpo`: from the plan to the table."""

from __future__ import annotations

import json
import sys
from math import fsum
from pathlib import Path

import typer
from rich.console import Console

from loopline.agents.environments.puzzle_splits import Split
from loopline.agents.records import Record
from loopline.bench.errors import BenchError
from loopline.bench.experiments.grpo.figures import GrpoReport, report_of
from loopline.bench.experiments.grpo.plan import Plan, with_needed
from loopline.bench.experiments.grpo.published import said
from loopline.bench.experiments.grpo.report import last_line, show, write
from loopline.bench.experiments.grpo.trials import Trial, chosen_of, lower, trial_of
from loopline.runtime.errors import EXIT_INTERRUPTED
from loopline.trainers.core.job_progress import JobProgress
from loopline.trainers.core.json_records import find_record, write_record
from loopline.trainers.core.output_lock import locked
from loopline.trainers.errors import TrainingError
from loopline.trainers.grpo.arms.folder import Watcher, claim, do_arms, results_of, timed
from loopline.trainers.grpo.arms.results import Arm
from loopline.trainers.grpo.arms.settings import ArmSettings

BASELINES = "baselines.json"


class ByHand(Record):
    """What players by hand solve of the held-out puzzles."""

    solved: dict[str, int]


def measure(plan: Plan, *, as_json: bool) -> None:
    """Do what is not done, print the table. Raises `BenchError`; SystemExit after Ctrl-C."""
    try:
        _require_puzzles(plan)
        claim(plan.output, plan.settings, more_seeds=True)
        with locked(plan.output):
            report = _done(plan)
    except TrainingError as error:
        raise BenchError(str(error)) from error
    except KeyboardInterrupt:
        report = None
    if report is None:
        print("stopped; go on with the same command", file=sys.stderr)
        raise SystemExit(EXIT_INTERRUPTED)
    show(report, plan.output, Console(highlight=False, width=None if sys.stdout.isatty() else 140))
    if as_json:
        typer.echo(json.dumps(last_line(report)))


def _done(plan: Plan) -> GrpoReport | None:
    """None if it was stopped."""
    with timed(plan.output) as seconds:
        by_hand = _by_hand(plan.output, plan.settings)
        made = _trained(plan)
        if made is None:
            return None
        trials, arms = made
        done = with_needed([*plan.trials, *arms])
        every = results_of(done, plan.output)
        stopped = {
            arm.name: f"{one.stopped}. {lower(arm)}"
            for arm, one in zip(done, every, strict=True)
            if one.stopped
        }
        name = plan.settings.game.name
        report = report_of(
            plan.settings, results_of(arms, plan.output), by_hand.solved, said(name),
            seconds() / 60, cpu_minutes=fsum(one.cpu_seconds for one in every) / 60,
            trials=trials, stopped=stopped,
        )  # fmt: skip
    write(report, plan.output)
    return report


def _trained(plan: Plan) -> tuple[tuple[Trial, ...], list[Arm]] | None:
    """The trials, and the arms of the table, tuned as these have chosen; None if it was
    stopped."""
    with JobProgress("trainings") as progress:

        def of_all(jobs: int, left: int) -> Watcher:
            return progress.watch(jobs + plan.behind, left + plan.behind)

        if not do_arms(plan.first, plan.output, jobs=plan.jobs, watcher=of_all):
            return None
        trials = tuple(map(trial_of, results_of(plan.trials, plan.output)))
        arms = plan.arms(chosen_of(trials))
        every = with_needed([*plan.first, *arms])
        if not do_arms(every, plan.output, jobs=plan.jobs, watcher=progress.watch):
            return None
    return trials, arms


def _require_puzzles(plan: Plan) -> None:
    """Raises `BenchError` where there are not so many held-out ones, while the folder is nobody's
    still."""
    settings = plan.settings
    if (plan.output / BASELINES).exists():
        return
    try:
        settings.game.tables(Split.TEST, settings.test_seed, settings.held_out)
    except ValueError as error:
        raise BenchError(f"--held-out {settings.held_out}: {error}") from error


def _by_hand(output: Path, settings: ArmSettings) -> ByHand:
    path = output / BASELINES
    found = find_record(path, ByHand, f"remove {path}, then run the same command again")
    if found is not None:
        return found
    found = ByHand(solved=settings.game.baselines(settings.test_seed, settings.held_out))
    write_record(path, found)
    return found
