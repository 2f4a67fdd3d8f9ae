"""The whole demonstration in one folder: see `loopline.trainers.grpo.arms.folder`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from loopline.trainers.core.curves import DEFAULT_TRACKERS, require_trackers
from loopline.trainers.core.json_records import find_record, write_record
from loopline.trainers.grpo.arms.folder import (
    REPORT,
    Watcher,
    claim,
    results_of,
    run_arms,
    track_seconds,
)
from loopline.trainers.grpo.arms.results import Arm
from loopline.trainers.grpo.demo.report import DemoReport, Share, report_of
from loopline.trainers.grpo.demo.settings import ARMS, DemoSettings


def run(
    settings: DemoSettings,
    output: Path,
    *,
    jobs: int,
    restart: bool = False,
    watcher: Callable[[int, int], Watcher] = lambda arms, remaining: lambda arm, update: None,
    trackers: tuple[str, ...] = DEFAULT_TRACKERS,
) -> DemoReport:
    """Run the unfinished part of the demonstration, `jobs` arms at a time, and write its report.
    `watcher` and `trackers` are those of `run_arms`.

    Ctrl-C raises KeyboardInterrupt, with everything saved so that it can be resumed. Raises
    `TrainingError`s.
    """
    require_trackers(trackers)
    claim(output, settings, restart=restart)
    report = output / REPORT
    finished = find_record(report, DemoReport)
    if finished is not None:
        return finished
    arms = arms_of(settings)
    with track_seconds(output) as seconds:
        if not run_arms(arms, output, jobs=jobs, watcher=watcher, trackers=trackers):
            raise KeyboardInterrupt
        solved = settings.game.baselines(settings.test_seed, settings.held_out)
        by_hand = {
            name: Share.of(solved_count, settings.held_out) for name, solved_count in solved.items()
        }
        demo_report = report_of(settings, results_of(arms, output), by_hand, seconds() / 60)
    write_record(report, demo_report)
    return demo_report


def arms_of(settings: DemoSettings) -> list[Arm]:
    """All arms, in an order in which those that others wait for come first."""
    return [Arm(kind=kind, seed=seed) for kind in ARMS for seed in settings.seeds]
