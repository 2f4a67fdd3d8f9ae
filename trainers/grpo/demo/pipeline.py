"""The whole demonstration in one folder.

    OUTPUT/settings.json             what everything follows from
    OUTPUT/seed-1/<arm>/             see `arm`
    OUTPUT/clock.json                seconds of the wall clock so far
    OUTPUT/report.json               what was found

What is finished is not done again.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from trainers.checkpoints import require_disk, require_same_recipe
from trainers.errors import TrainingError, UnreadableModel
from trainers.grpo.demo.baselines import baselines
from trainers.grpo.demo.report import REPORT, DemoReport, report_of
from trainers.grpo.demo.results import Arm, ArmResult, read_result
from trainers.grpo.demo.settings import ARMS, SETTINGS, DemoSettings
from trainers.job_processes import Told, do_jobs

CLOCK = "clock.json"
WORKER = "trainers.grpo.demo.worker"
Watcher = Callable[[Arm, Told], None]
ModelT = TypeVar("ModelT", bound=BaseModel)
_DISK = 64 * 1024 * 1024


class Clock(BaseModel):
    """Over all parts of an interrupted run."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    seconds: float = 0.0


def run(
    settings: DemoSettings,
    output: Path,
    *,
    jobs: int,
    restart: bool = False,
    watcher: Callable[[int, int], Watcher] = lambda arms, left: lambda arm, told: None,
) -> DemoReport:
    """Do what is left of the demonstration, `jobs` arms at a time, and write its report.

    `watcher` is asked, with the number of all arms and of those that are left, for who is told how
    they go. Ctrl-C raises KeyboardInterrupt, with everything where it can be gone on from. Raises
    `TrainingError`s.
    """
    began = time.monotonic()
    _claim(output, settings, restart=restart)
    require_disk(output, _DISK)
    report = output / REPORT
    if report.exists():
        return _read(report, DemoReport)
    before = _clock(output)
    arms = arms_of(settings)

    def done(arm: Arm) -> bool:
        return read_result(arm.folder(output)) is not None

    def ready(arm: Arm) -> bool:
        return all(map(done, arm.needs))

    left = [arm for arm in arms if not done(arm)]

    def seconds() -> float:
        return before + time.monotonic() - began

    told = watcher(len(arms), len(left))
    try:
        if not asyncio.run(do_jobs(left, WORKER, output, jobs, told, ready)):
            raise KeyboardInterrupt
        by_hand = baselines(settings)
    finally:
        _write(output / CLOCK, Clock(seconds=round(seconds(), 3)))
    results = [_result(arm, output) for arm in arms]
    found = report_of(settings, results, by_hand, seconds() / 60)
    _write(report, found)
    return found


def arms_of(settings: DemoSettings) -> list[Arm]:
    """All of them: what others wait for comes first."""
    return [Arm(kind=kind, seed=seed) for kind in ARMS for seed in settings.seeds]


def _result(arm: Arm, output: Path) -> ArmResult:
    found = read_result(arm.folder(output))
    if found is None:
        raise TrainingError(f"{arm.folder(output)} has no result: run the command again")
    return found


def _claim(output: Path, settings: DemoSettings, *, restart: bool) -> None:
    """Make the folder this demonstration's own. Raises `TrainingError` if it is another one's."""
    path = output / SETTINGS
    if restart and path.exists():
        found = _read(path, DemoSettings)
        for seed in found.seeds:
            shutil.rmtree(output / f"seed-{seed}", ignore_errors=True)
        for name in (REPORT, CLOCK, SETTINGS):
            (output / name).unlink(missing_ok=True)
    if path.exists():
        require_same_recipe(_read(path, DemoSettings), settings, output)
        return
    if output.exists() and any(output.iterdir()):
        raise TrainingError(f"{output} holds something else; name another folder")
    output.mkdir(parents=True, exist_ok=True)
    _write(path, settings)


def _clock(output: Path) -> float:
    path = output / CLOCK
    return _read(path, Clock).seconds if path.exists() else 0.0


def _read(path: Path, kind: type[ModelT]) -> ModelT:
    try:
        return kind.model_validate_json(path.read_bytes())
    except ValidationError as error:
        why = error.errors()[0]["msg"]
        raise UnreadableModel(f"{path} is damaged ({why}); remove {path.parent}") from error


def _write(path: Path, what: BaseModel) -> None:
    part = path.with_name(f".{path.name}.part")
    part.write_text(what.model_dump_json(indent=1) + "\n")
    part.rename(path)
