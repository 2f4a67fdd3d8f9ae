"""One arm of one seed, from its first step to its results on the held-out puzzles.

    OUTPUT/seed-1/at-grpo/checkpoints/     while it runs
    OUTPUT/seed-1/at-grpo/curves/          for the trackers
    OUTPUT/seed-1/at-grpo/model/           the trained model in the engines' format: see `models`
    OUTPUT/seed-1/at-grpo/result.json      its outcomes and its learning curve

A result is written last and atomically: an arm that has one is not trained again. A loss that is
not finite ends a training early: its result is that of the weights before the loss, and records the
reason.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from loopline.agents.environments.puzzle_splits import Split
from loopline.trainers.core.checkpoints import (
    CheckpointState,
    forget_work,
    load_checkpoint,
    save_checkpoint,
)
from loopline.trainers.core.curves import DEFAULT_TRACKERS, FOLDER, Curves
from loopline.trainers.core.interruption import deferred_interrupt
from loopline.trainers.core.job_processes import JobLine
from loopline.trainers.errors import TrainingError, UnreadableModel
from loopline.trainers.grpo.arms.dagger import DaggerSteps
from loopline.trainers.grpo.arms.measured import measure, play_greedily
from loopline.trainers.grpo.arms.models import load_policies, untrained_policies, write
from loopline.trainers.grpo.arms.reinforced import ReinforcedSteps
from loopline.trainers.grpo.arms.results import Arm, ArmResult, Point, read_result, write_result
from loopline.trainers.grpo.arms.settings import ArmSettings
from loopline.trainers.grpo.arms.steps import Steps
from loopline.trainers.grpo.arms.supervised import SupervisedSteps
from loopline.trainers.grpo.learner import NotFinite

_WORK = "checkpoints"
PARTS = 1_000
"""Number of parts in which an arm's progress is reported."""

Tell = Callable[[JobLine], None]


class ArmState(CheckpointState):
    """State in a checkpoint besides its tensors."""

    tokens: int = 0
    samples: int = 0
    train_cpu_seconds: float = 0.0
    cpu_seconds: float = 0.0
    curve: tuple[Point, ...] = ()
    stopped: str = ""
    """Why no further step can be made."""


def train_arm(
    arm: Arm,
    output: Path,
    settings: ArmSettings,
    tell: Tell,
    trackers: tuple[str, ...] = DEFAULT_TRACKERS,
) -> ArmResult:
    """Train the arm from its checkpoint, if there is one, measure it and write its result.

    `settings` are those of all arms. After Ctrl-C the arm finishes the step, saves a checkpoint and
    raises KeyboardInterrupt. Raises `TrainingError`.
    """
    settings = arm.tuning.applied(settings)
    result = read_result(arm.folder(output))
    if result is not None:
        return result
    if arm.what.way == "measured":
        tell(_playing(settings))
        # Repeated from the start after a stop.
        return measure(arm, output, settings)
    return _ArmTraining(arm, output, settings, tell, trackers).run()


def _playing(settings: ArmSettings) -> JobLine:
    return JobLine(event="playing", message=f"{settings.held_out:,} held-out puzzles")


class _ArmTraining:
    def __init__(
        self,
        arm: Arm,
        output: Path,
        settings: ArmSettings,
        tell: Tell,
        trackers: tuple[str, ...],
    ) -> None:
        self.trackers = trackers
        self.arm, self.settings, self.tell, self.output = arm, settings, tell, output
        self.folder = arm.folder(output)
        self.playing = untrained_policies(arm, output, settings)
        self.policies = self.playing.policies
        self.steps = self._steps()
        self.budget = self._budget()
        self.state = ArmState(step=0)
        self._cpu = time.process_time()

    def run(self) -> ArmResult:
        self._restore()
        with (
            deferred_interrupt() as interruption,
            Curves(self._drawn(), self.state.step, self.trackers) as curves,
        ):
            if not self.state.curve:
                self._evaluate_now()
            while self._share() < 1.0 and not self.state.stopped:
                looks = self._due_evaluations()
                try:
                    self._step(curves)
                except NotFinite as error:
                    message = f"step {self.state.step + 1}: {error}"
                    self.state = self.state.model_copy(update={"stopped": message})
                    if self.state.curve[-1].step != self.state.step:
                        self._evaluate_now()
                if self._due_evaluations() > looks:
                    self._evaluate_now()
                    curves.add(self.state.step, {"greedy success": self.state.curve[-1].success})
                if interruption.requested or self.state.step % self.settings.checkpoint_every == 0:
                    self._save()
                if interruption.requested:
                    raise KeyboardInterrupt
            # The measurement is repeated after a kill; the training is not.
            self._save()
            self.tell(_playing(self.settings))
            result = self._result()
            if interruption.requested:
                raise KeyboardInterrupt
        return result

    def _drawn(self) -> Path | None:
        return self.folder / FOLDER if self.trackers else None

    def _step(self, curves: Curves) -> None:
        began = time.process_time()
        step_facts = self.steps.step(self.state.step, self._share())
        spent = time.process_time() - began
        self.state = self.state.model_copy(
            update={
                "step": self.state.step + 1,
                "tokens": self.state.tokens + step_facts.tokens,
                "samples": self.state.samples + step_facts.samples,
                "train_cpu_seconds": self.state.train_cpu_seconds + spent,
            }
        )
        curves.add(self.state.step, step_facts.curves)
        greedy = f"greedy {self.state.curve[-1].success:.0%}, " if self.state.curve else ""
        progress = int(PARTS * self._share())
        self.tell(
            JobLine(
                event="training",
                done=progress,
                total=PARTS,
                message=f"{greedy}{step_facts.message}",
            )
        )

    def _evaluate_now(self) -> None:
        evaluation = play_greedily(
            self.playing, self.arm, self.settings, Split.VALIDATION, self.settings.looked_at
        )
        point = Point(
            step=self.state.step,
            tokens=self.state.tokens,
            samples=self.state.samples,
            cpu_seconds=round(self.state.train_cpu_seconds, 3),
            success=evaluation.outcomes.count("1") / len(evaluation.outcomes),
        )
        self.state = self.state.model_copy(update={"curve": (*self.state.curve, point)})

    def _due_evaluations(self) -> int:
        """Number of evaluations that are due by now, without the first one."""
        once = self.arm.what.way == "supervised" and self.arm.begins is None
        return int(self._share() * (1 if once else self.settings.looks))

    def _share(self) -> float:
        """Finished share of the arm's steps or, if it has a budget, of its budget."""
        spends = self.arm.spends
        if spends is not None:
            spent = self.state.tokens if spends == "tokens" else self.state.samples
            return min(1.0, spent / self.budget)
        steps = {
            "supervised": self.settings.supervised.steps,
            "reinforced": self.settings.reinforced.steps,
            "dagger": self.settings.dagger.steps,
        }
        return min(1.0, self.state.step / steps[self.arm.what.way])

    def _budget(self) -> int:
        """Tokens or samples to spend; 0 if steps are counted."""
        spends = self.arm.spends
        if spends is None:
            return 0
        folder = self.arm.budget_arm.folder(self.output)
        peer = read_result(folder)
        if peer is None:
            raise UnreadableModel(f"{folder} has no result")
        budget = peer.tokens if spends == "tokens" else peer.samples
        if not budget:
            raise TrainingError(
                f"{folder}: {peer.arm} stopped before it finished its first step "
                f"({peer.stopped}), so it sets no budget for this arm: lower its learning rate, "
                "in another folder"
            )
        return budget

    def _steps(self) -> Steps:
        arm, settings, playing = self.arm, self.settings, self.playing
        if arm.what.way == "reinforced":
            return ReinforcedSteps(
                settings, arm.what, arm.seed, playing.policies, playing.prompter, playing.sampler
            )
        if arm.what.way == "dagger":
            return DaggerSteps(settings, arm.seed, playing)
        # Later answers differ from those of the warm start.
        first = 0 if arm.begins is None else settings.supervised.steps
        return SupervisedSteps(
            settings, arm.seed, first, arm.what.team, playing.policies, playing.prompter
        )

    def _restore(self) -> None:
        checkpoint = load_checkpoint(self.folder / _WORK, ArmState)
        if checkpoint is not None:
            self.policies.restore(checkpoint.tensors)
            self.state = checkpoint.state

    def _save(self) -> None:
        self._count_cpu()
        save_checkpoint(self.folder / _WORK, self.state, self.policies.tensors())

    def _count_cpu(self) -> None:
        now = time.process_time()
        spent = self.state.cpu_seconds + now - self._cpu
        self.state, self._cpu = self.state.model_copy(update={"cpu_seconds": spent}), now

    def _result(self) -> ArmResult:
        write(self.arm, self.output, self.playing)
        # Measure the weights as they were written, rounding included.
        evaluation = play_greedily(
            load_policies(self.arm, self.output, self.settings),
            self.arm, self.settings, Split.TEST, self.settings.held_out,
        )  # fmt: skip
        self._count_cpu()
        result = ArmResult.of(
            self.arm,
            evaluation,
            steps=self.state.step,
            tokens=self.state.tokens,
            samples=self.state.samples,
            train_cpu_seconds=round(self.state.train_cpu_seconds, 1),
            cpu_seconds=round(self.state.cpu_seconds, 1),
            curve=self.state.curve,
            stopped=self.state.stopped,
        )
        write_result(self.folder, result)
        forget_work(self.folder / _WORK)
        return result
