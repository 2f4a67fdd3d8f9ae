"""The folder of the curves, and one loop of it.

    OUTPUT/settings.json                 the settings of everything
    OUTPUT/seed-1/warm-start/            see `loopline.trainers.grpo.arms.arm`
    OUTPUT/base/                         the warm start as served, in float32
    OUTPUT/loops/attacked-1/             Redis's data, the recorder's store, logs
    OUTPUT/loops/attacked-1/loop/        the folder of `train grpo loop`
    OUTPUT/loops/attacked-1/adapters/    the adapters that each round published
    OUTPUT/loops/attacked-1/history.json the loop's history and its violations
    OUTPUT/loops/attacked-1/result.json  the same, with the curve
    OUTPUT/clock.json                    wall-clock seconds so far
    OUTPUT/report.json, report.html, report.md

Finished work is not repeated; an interrupted loop starts over.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from pydantic import AliasChoices, Field

from loopline.agents.records import Record
from loopline.bench.experiments.grpo_curve.looks import Measurement
from loopline.bench.experiments.grpo_curve.settings import CurveSettings, loop_arguments
from loopline.bench.proofs.faults.chaos import FAULTS
from loopline.bench.proofs.grpo_faults.checker import check
from loopline.bench.proofs.grpo_faults.driver import (
    ONLY_KILLS,
    AdapterCopies,
    LoopAttack,
    LoopDriver,
    LoopWork,
)
from loopline.bench.proofs.grpo_faults.model import store_float32
from loopline.trainers.core.job_processes import JobLine
from loopline.trainers.core.json_records import find_record, write_record
from loopline.trainers.core.models import WEIGHTS
from loopline.trainers.grpo.arms.arm import train_arm
from loopline.trainers.grpo.arms.kinds import WARM_START
from loopline.trainers.grpo.arms.models import MODEL
from loopline.trainers.grpo.arms.results import Arm, ArmResult
from loopline.trainers.grpo.loop.report import read_loop_report
from loopline.trainers.grpo.settings import SHARED
from loopline.workers.atomic_files import atomic_folder

Kind = Literal["undisturbed", "attacked"]
Tell = Callable[[JobLine], None]
HISTORY = "history.json"
RESULT = "result.json"


class CurveLoop(Record):
    """Kind and seed of a loop. Loops with the same seed are twins: they start from the same
    adapters and plan the same puzzles, with the same seed for every completion."""

    kind: Kind
    seed: int

    @property
    def name(self) -> str:
        return f"{self.kind}, seed {self.seed}"

    def folder(self, output: Path) -> Path:
        return output / "loops" / f"{self.kind}-{self.seed}"


class LoopHistory(Record):
    """History of a loop and of the attacks on it."""

    rounds: int
    groups: int
    trained_groups: int
    runs: int
    injected: dict[str, int] = Field(validation_alias=AliasChoices("injected", "struck"))
    """Faults by kind, called `struck` in older folders; `trainer` counts its deaths."""
    died: tuple[str, ...]
    """Workers that exited without an injected fault."""
    sampled: tuple[float, ...]
    """Solved share of the loop's runs by round, including aborted runs; the best of K candidates
    was executed."""
    seconds: float
    violations: tuple[str, ...]
    """Violations of the rules that every loop must obey: see
    `loopline.bench.proofs.grpo_faults.checker`."""


class Look(Record):
    """Measured result of a round."""

    round: int
    outcomes: str = Field(pattern=r"^[01]+$")
    """Outcomes of the held-out puzzles at temperature 1, in order: `1` solved, `0` not."""

    @property
    def solved(self) -> int:
        return self.outcomes.count("1")


class LoopResult(Record):
    """A finished loop and its curve."""

    loop: CurveLoop
    history: LoopHistory
    looks: tuple[Look, ...]
    """Looks in order; the first one, of round 0, belongs to the warm start, which all loops
    share."""


def loops_of(settings: CurveSettings) -> list[CurveLoop]:
    """Return all loops; the attacked ones come last."""
    twins = settings.seeds[: settings.attacked]
    return [
        *(CurveLoop(kind="undisturbed", seed=seed) for seed in settings.seeds),
        *(CurveLoop(kind="attacked", seed=seed) for seed in twins),
    ]


def read_result(loop: CurveLoop, output: Path) -> LoopResult | None:
    """Return the result of a finished loop; None if it is not finished. Raises
    `UnreadableModel`."""
    folder = loop.folder(output)
    return find_record(folder / RESULT, LoopResult, f"remove {folder} to run it again")


def warm_start_of(settings: CurveSettings) -> Arm:
    """Return the arm from which all loops start."""
    return Arm(kind=WARM_START, seed=settings.warm_seed)


def run_warm_start(settings: CurveSettings, output: Path, tell: Tell) -> ArmResult:
    """Train and measure the warm start, unless it exists, and write it in the form that is served.
    Ctrl-C saves a checkpoint and raises KeyboardInterrupt. Raises `TrainingError`."""
    arm = warm_start_of(settings)
    result = train_arm(arm, output, settings, tell)
    base = output / "base"
    if not base.exists():
        from safetensors.torch import load_file

        with atomic_folder(base) as partial:
            shutil.copytree(arm.folder(output) / MODEL, partial, dirs_exist_ok=True)
            store_float32(load_file(partial / WEIGHTS), partial)
    return result


def run_loop(loop: CurveLoop, settings: CurveSettings, output: Path, tell: Tell) -> LoopResult:
    """Run the loop, measure the adapters that its rounds published, and write the result; a
    finished loop's result is read. The warm start must exist. Raises `BenchError`,
    `TrainingError`."""
    stored_result = read_result(loop, output)
    if stored_result is not None:
        return stored_result
    folder, base = loop.folder(output), output / "base"
    adapters = AdapterCopies(folder / "adapters")
    path = folder / HISTORY
    history = find_record(path, LoopHistory, f"remove {folder} to run it again")
    if history is None:
        history = _play_loop(loop, settings, base, folder, adapters, tell)
        write_record(path, history)
    measurement, looks = Measurement(base, settings), list[Look]()
    for number in (0, *settings.measured_rounds):
        look = Look(round=number, outcomes=measurement.outcomes(adapters.folder(number) / SHARED))
        looks.append(look)
        message = f"round {number}: {look.solved:,} of {settings.held_out:,} held-out puzzles"
        tell(JobLine(event="playing", message=message))
    result = LoopResult(loop=loop, history=history, looks=tuple(looks))
    write_record(folder / RESULT, result)
    return result


def _play_loop(
    loop: CurveLoop,
    settings: CurveSettings,
    base: Path,
    folder: Path,
    adapters: AdapterCopies,
    tell: Tell,
) -> LoopHistory:
    """Run a loop from an empty bus to its end, and check its history."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    faults = None
    if loop.kind == "attacked":
        faults = ONLY_KILLS if settings.only_kills else FAULTS
    driver = LoopDriver(
        folder,
        LoopWork(base, settings.rounds, settings.groups, loop_arguments(settings, loop.seed)),
        seed=loop.seed,
        faults=faults,
        progress=lambda count, message: tell(
            JobLine(event="training", done=count, total=settings.rounds, message=message)
        ),
        adapters=adapters,
    )
    attack = driver.attack()
    scratch = folder / "trained-again"
    scratch.mkdir()
    return history_of(
        attack, folder, [str(violation) for violation in check(attack.evidence, scratch)]
    )


def history_of(attack: LoopAttack, folder: Path, violations: list[str]) -> LoopHistory:
    """Return the history of a finished loop in `folder`."""
    report = read_loop_report(folder / "loop")
    fates = [group.fate for round_entry in attack.evidence.sealed for group in round_entry.groups]
    return LoopHistory(
        rounds=len(attack.evidence.sealed),
        groups=len(fates),
        trained_groups=fates.count("trained"),
        runs=len(attack.evidence.bus.accepted),
        injected=dict(attack.injected),
        died=tuple(attack.died),
        sampled=()
        if report is None
        else tuple(round_entry.success for round_entry in report.rounds),
        seconds=round(attack.seconds, 1),
        violations=tuple(violations),
    )
