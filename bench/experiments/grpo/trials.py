"""Tuning of the arms: every arm that learns tries the same tunings with the first seed, and gets
the one with which it solved most puzzles of the validation split.

A trial is as long as the arm's training, so that a tuning with a late setback is not chosen. The
chosen trials are used in the table as the first seed's results.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from loopline.agents.records import Record
from loopline.trainers.grpo.arms.kinds import ArmName
from loopline.trainers.grpo.arms.results import Arm, ArmResult
from loopline.trainers.grpo.arms.tuning import OWN, Tuning

LOOKS_COUNTED = 3
"""Number of a trial's last looks that count: a single look has few puzzles."""


class Trial(Record):
    """An arm with one tuning."""

    arm: ArmName
    tuning: Tuning
    validation: float
    """Greedy success, averaged over the last looks; the choice is based on it."""
    held_out: float
    """Final result on the table's held-out puzzles. No choice is based on it."""
    stopped: bool = False
    """Whether the training ended early because its next loss was not a number."""


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
    """Return the best trial for each arm; among equal ones the game's own, or else the first. A
    tuning whose training ended early is chosen only if all ended early."""

    def better(trial: Trial) -> tuple[bool, float, bool]:
        return not trial.stopped, trial.validation, trial.tuning == OWN

    best: dict[ArmName, Trial] = {}
    for trial in trials:
        best[trial.arm] = max(best.get(trial.arm, trial), trial, key=better)
    return {name: trial.tuning for name, trial in best.items()}


def lower_setting_hint(arm: Arm) -> str:
    """Suggest a lower setting for an arm that ended early."""
    part = "supervised" if arm.what.way == "supervised" else "reinforced"
    hint = "with --trials, or " if arm.what.learns else ""
    return f"Lower its learning rate {hint}with --set {part}.learning_rate=… in another folder"
