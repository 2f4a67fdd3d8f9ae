"""Tuning of the arms: every arm that learns is tried in the same ways, on the first seed, and takes
the one by which it solved most puzzles of the validation split.

A trial is as long as the arm itself, so that one by which it falls back later is not chosen. Those
of the first seed that were chosen are in the table as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from loopline.agents.records import Record
from loopline.trainers.grpo.arms.kinds import ArmName
from loopline.trainers.grpo.arms.results import Arm, ArmResult
from loopline.trainers.grpo.arms.tuning import OWN, Tuning

LOOKS_COUNTED = 3
"""Number of a trial's last looks that count, since a single one has few puzzles."""


class Trial(Record):
    """An arm, tuned in one way."""

    arm: ArmName
    tuning: Tuning
    validation: float
    """Greedy success, mean of the last looks, on which the choice is based."""
    held_out: float
    """Final result on the held-out puzzles of the table. No choice is based on it."""
    stopped: bool = False
    """Whether it ended early, as its next loss was not a number."""


def trial_of(result: ArmResult) -> Trial:
    """Build a trial from its result."""
    return Trial(
        arm=result.arm,
        tuning=result.tuning,
        validation=fmean(point.success for point in result.curve[-LOOKS_COUNTED:]),
        held_out=result.success,
        stopped=bool(result.stopped),
    )


def choose_tunings(trials: Sequence[Trial]) -> dict[ArmName, Tuning]:
    """Return the best trial for each arm; of equal ones the game's own, or the one named first. A
    tuning whose training ended early is chosen only if all ended early."""

    def better(trial: Trial) -> tuple[bool, float, bool]:
        return not trial.stopped, trial.validation, trial.tuning == OWN

    best: dict[ArmName, Trial] = {}
    for trial in trials:
        best[trial.arm] = max(best.get(trial.arm, trial), trial, key=better)
    return {name: trial.tuning for name, trial in best.items()}


def lower_setting_hint(arm: Arm) -> str:
    """Suggest a lower setting where an arm ended early."""
    part = "supervised" if arm.what.way == "supervised" else "reinforced"
    hint = "by --trials, or " if arm.what.learns else ""
    return f"Lower its learning rate {hint}by --set {part}.learning_rate=… in another folder"
