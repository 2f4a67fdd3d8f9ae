"""Settings for tests of `bench grpo`, and results without a training."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from loopline.bench.experiments.grpo.figures import GrpoReport, report_of
from loopline.bench.experiments.grpo.grid import GrpoGrid, grid_of
from loopline.bench.experiments.grpo.tables import published_results
from loopline.bench.experiments.grpo.trials import Trial
from loopline.trainers.grpo.arms.kinds import (
    ArmName,
)
from loopline.trainers.grpo.arms.results import ArmResult, Point
from loopline.trainers.grpo.arms.settings import ArmSettings
from loopline.trainers.grpo.arms.tuning import OWN, Tuning
from tests.trainers.grpo.tiny_puzzles import GAME

SETTINGS = ArmSettings(game=GAME, seeds=(1, 2), held_out=8)
SLOW, FAST = Tuning(rate=0.3), Tuning(rate=3)
NO_BONUS = Tuning(entropy=0)
SMALL = Tuning(batch=0.33)


def a_result(
    arm: ArmName,
    seed: int,
    outcomes: str,
    *,
    agreement: float | None = None,
    text: str = "#### [U]",
    tuning: Tuning = OWN,
    looks: Sequence[float] | None = None,
) -> ArmResult:
    failures = {"refused": outcomes.count("0")}
    return ArmResult(
        arm=arm, seed=seed, tuning=tuning, steps=3, tokens=1_000 * seed, samples=100,
        train_cpu_seconds=60.0, cpu_seconds=90.0, outcomes=outcomes, failures=failures,
        agreement=agreement,
        answers={"plan_agent": {text: 7}},
        curve=tuple(
            Point(step=at, tokens=100 * at, samples=10 * at, cpu_seconds=1, success=success)
            for at, success in zip((0, 3, 6, 9, 12), looks or (0, 3 * seed / 10), strict=False)
        ),
    )  # fmt: skip


def report(*results: ArmResult, trials: tuple[Trial, ...] = ()) -> GrpoReport:
    return report_of(
        SETTINGS, results, {"random": 0, "oracle": 8}, published_results("plan_path"), 12.5,
        cpu_minutes=9, trials=trials,
        stopped={"seed 1, MAS + GRPO, rate × 3": "step 2: the loss is nan"},
    )  # fmt: skip


def grid(
    output: Path,
    *,
    game: str = "plan_path",
    seeds: str = "1,2",
    arms: str = "all",
    trials: str = "rate=0.3,own",
    changes: Sequence[str] = (),
) -> GrpoGrid:
    return grid_of(
        output,
        game=game,
        seeds=seeds,
        arms=arms,
        trials=trials,
        held_out=10,
        jobs=2,
        changes=changes,
    )
