"""One arm of one seed, from its first step to what it solves of the held-out puzzles.

    OUTPUT/seed-1/at-grpo/checkpoints/     while it is in work
    OUTPUT/seed-1/at-grpo/curves/          for TensorBoard
    OUTPUT/seed-1/at-grpo/model/           the trained model, as the engines read it
    OUTPUT/seed-1/at-grpo/result.json      its outcomes and its learning curve

A result is written last and whole: an arm that has one is not done again.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from agents.environments.puzzle_splits import Split
from trainers.checkpoints import CheckpointState, load_checkpoint, save_checkpoint
from trainers.curves import Curves
from trainers.errors import UnreadableModel
from trainers.grpo.demo.beginning import write_beginning
from trainers.grpo.demo.demonstrations import tables
from trainers.grpo.demo.reinforced import ReinforcedSteps, grpo_settings
from trainers.grpo.demo.results import RESULT, Arm, ArmResult, Point, read_result
from trainers.grpo.demo.settings import (
    AT_GRPO,
    CONTINUED,
    TEST_SEED,
    WARM_START,
    DemoSettings,
)
from trainers.grpo.demo.steps import Steps
from trainers.grpo.demo.supervised import SupervisedSteps
from trainers.grpo.in_process import Evaluated, Prompter, evaluate
from trainers.grpo.pipeline import begun
from trainers.grpo.sampling import Sampler
from trainers.grpo.settings import SHARED
from trainers.interruption import deferred_interrupt
from trainers.job_processes import Told
from trainers.network import load_base
from workers.engines.local.adapter_base import weights_sha256
from workers.engines.torch.loading import LoadedModel

MODEL = "model"
_WORK = "checkpoints"
PARTS = 1_000
"""That an arm's progress is told in."""

Tell = Callable[[Told], None]


class ArmState(CheckpointState):
    """What a checkpoint knows besides its tensors."""

    tokens: int = 0
    train_cpu_seconds: float = 0.0
    cpu_seconds: float = 0.0
    curve: tuple[Point, ...] = ()


def work(arm: Arm, output: Path, settings: DemoSettings, tell: Tell) -> ArmResult:
    """Train the arm from its checkpoint, if there is one, measure it and write its result.

    Ctrl-C ends the step, saves a checkpoint and raises KeyboardInterrupt.
    """
    found = read_result(arm.folder(output))
    return found if found is not None else _ArmTraining(arm, output, settings, tell).run()


class _ArmTraining:
    def __init__(
        self, arm: Arm, output: Path, settings: DemoSettings, tell: Callable[[Told], None]
    ) -> None:
        self.arm, self.settings, self.tell = arm, settings, tell
        self.folder = arm.folder(output)
        base = self._base(output)
        loaded = load_base(str(base))
        grpo = grpo_settings(settings, weights_sha256(base), arm.seed)
        self.policies = begun(grpo, [SHARED], loaded)
        self.base = base
        self.prompter = Prompter(loaded)
        self.sampler = _sampler(loaded)
        self.steps = self._steps()
        self.budget = self._budget(output)
        self.state = ArmState(step=0)
        self._cpu = time.process_time()

    def run(self) -> ArmResult:
        self._restore()
        with (
            deferred_interrupt() as interruption,
            Curves(self.folder / "curves", self.state.step) as curves,
        ):
            if not self.state.curve:
                self._look()
            while self._share() < 1.0:
                looks = self._looks()
                self._step(curves)
                if self._looks() > looks:
                    self._look()
                    curves.add(self.state.step, {"greedy success": self.state.curve[-1].success})
                if interruption.asked or self.state.step % self.settings.checkpoint_every == 0:
                    self._save()
                if interruption.asked:
                    raise KeyboardInterrupt
            # The measurement is done again after a kill; the training is not.
            self._save()
            self.tell(Told(event="playing", said=f"{self.settings.held_out:,} held-out puzzles"))
            result = self._result()
            if interruption.asked:
                raise KeyboardInterrupt
        return result

    def _step(self, curves: Curves) -> None:
        began = time.process_time()
        made = self.steps.step(self.state.step)
        spent = time.process_time() - began
        self.state = self.state.model_copy(
            update={
                "step": self.state.step + 1,
                "tokens": self.state.tokens + made.tokens,
                "train_cpu_seconds": self.state.train_cpu_seconds + spent,
            }
        )
        curves.add(self.state.step, made.curves)
        greedy = f"greedy {self.state.curve[-1].success:.0%}, " if self.state.curve else ""
        done = int(PARTS * self._share())
        self.tell(Told(event="training", done=done, total=PARTS, said=f"{greedy}{made.said}"))

    def _look(self) -> None:
        found = self._played(Split.VALIDATION, self.settings.looked_at)
        point = Point(
            step=self.state.step,
            tokens=self.state.tokens,
            cpu_seconds=round(self.state.train_cpu_seconds, 3),
            success=found.outcomes.count("1") / len(found.outcomes),
        )
        self.state = self.state.model_copy(update={"curve": (*self.state.curve, point)})

    def _played(self, split: Split, count: int) -> Evaluated:
        self.policies.put_in(SHARED)
        puzzles = tables(split, self.settings.puzzle, TEST_SEED, count)
        return evaluate(puzzles, self.prompter, self.sampler, self.settings.reinforced.limit)

    def _looks(self) -> int:
        """That are due by now, but for the first one."""
        warm = self.arm.kind == WARM_START
        return int(self._share() * (1 if warm else self.settings.looks))

    def _share(self) -> float:
        """Of the arm's steps or, where it has a budget, of its tokens."""
        if self.budget is not None:
            return min(1.0, self.state.tokens / self.budget)
        chosen = self.settings
        whole = (chosen.supervised if self.arm.kind == WARM_START else chosen.reinforced).steps
        return min(1.0, self.state.step / whole)

    def _base(self, output: Path) -> Path:
        if self.arm.kind != WARM_START:
            (warm, *_) = self.arm.needs
            return warm.folder(output) / MODEL
        folder = output / f"seed-{self.arm.seed}" / "beginning"
        if not folder.exists():
            write_beginning(self.settings.network, self.arm.seed, folder)
        return folder

    def _budget(self, output: Path) -> int | None:
        """Tokens to spend."""
        if self.arm.kind != CONTINUED:
            return None
        peer = read_result(self.arm.needs[-1].folder(output))
        if peer is None:
            raise UnreadableModel(f"{self.arm.needs[-1].folder(output)} has no result")
        return peer.tokens

    def _steps(self) -> Steps:
        if self.arm.kind == AT_GRPO:
            return ReinforcedSteps(
                self.settings, self.arm.seed, self.policies, self.prompter, self.sampler
            )
        first = 0 if self.arm.kind == WARM_START else self.settings.supervised.steps
        return SupervisedSteps(self.settings, self.arm.seed, first, self.policies, self.prompter)

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
        self._write_model()
        found = self._played(Split.TEST, self.settings.held_out)
        self._count_cpu()
        result = ArmResult(
            arm=self.arm.kind,
            seed=self.arm.seed,
            steps=self.state.step,
            tokens=self.state.tokens,
            train_cpu_seconds=round(self.state.train_cpu_seconds, 1),
            cpu_seconds=round(self.state.cpu_seconds, 1),
            outcomes=found.outcomes,
            failures=found.failures,
            agreement=found.agreed / found.proposals if found.proposals else None,
            said=found.said,
            curve=self.state.curve,
        )
        part = self.folder / f".{RESULT}.part"
        part.write_text(result.model_dump_json(indent=1) + "\n")
        part.rename(self.folder / RESULT)
        shutil.rmtree(self.folder / _WORK, ignore_errors=True)
        return result

    def _write_model(self) -> None:
        """The trained model; what is measured are the weights as they were written, rounding
        included."""
        part = self.folder / f".{MODEL}.{os.getpid()}.part"
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        try:
            self.policies.put_in(SHARED)
            self.policies.network.write(part, self.base)
            shutil.rmtree(self.folder / MODEL, ignore_errors=True)
            part.rename(self.folder / MODEL)
        finally:
            shutil.rmtree(part, ignore_errors=True)
        loaded = load_base(str(self.folder / MODEL))
        self.prompter, self.sampler = Prompter(loaded), _sampler(loaded)


def _sampler(loaded: LoadedModel) -> Sampler:
    return Sampler(loaded.model, loaded.end_ids, padding=0)
