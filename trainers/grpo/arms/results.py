"""The arms of a seed, and the result of each."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from pydantic import Field

from loopline.agents.records import Record
from loopline.trainers.core.json_records import find_record, write_record
from loopline.trainers.grpo.arms.kinds import AT_GRPO, KINDS, ArmKind, ArmName, Spent, slug
from loopline.trainers.grpo.arms.tuning import OWN, Tuning
from loopline.trainers.grpo.vectorized_rollout import EvaluationResult

RESULT = "result.json"


class Arm(Record):
    """An arm: its kind, seed and tuning."""

    kind: ArmName
    seed: int
    tuning: Tuning = OWN
    """Tuning of the training; an arm that plays another's model has that one's tuning."""

    @property
    def name(self) -> str:
        return f"seed {self.seed}, {self.kind}{'' if self.tuning == OWN else f', {self.tuning}'}"

    def folder(self, output: Path) -> Path:
        """Output folder of the arm."""
        return output / f"seed-{self.seed}" / f"{slug(self.kind)}{self.tuning.suffix}"

    @property
    def what(self) -> ArmKind:
        return KINDS[self.kind]

    @property
    def begins(self) -> Arm | None:
        """Arm whose model it starts from, or plays; None: random weights."""
        if self.what.begins is None:
            return None
        tuning = self.tuning if self.what.way == "measured" else OWN
        return Arm(kind=self.what.begins, seed=self.seed, tuning=tuning)

    @property
    def spends(self) -> Spent | None:
        """The quantity of which it spends as much as `budget_arm`; None: the settings determine its
        number of steps."""
        return "samples" if self.kind == AT_GRPO and self.tuning != OWN else self.what.spends

    @property
    def budget_arm(self) -> Arm:
        """AT-GRPO with the settings of the game: all arms spend as much as this one, regardless of
        their tuning."""
        return Arm(kind=AT_GRPO, seed=self.seed)

    @property
    def needs(self) -> tuple[Arm, ...]:
        """Arms whose results must exist first: the one it starts from, and the one that sets its
        budget."""
        before = () if self.begins is None else (self.begins,)
        return before if self.spends is None else (*before, self.budget_arm)


class Point(Record):
    """One evaluation of an arm in training."""

    step: int
    tokens: int
    """Tokens through the model since the arm started."""
    samples: int
    """Completions drawn, or answers imitated, since the arm started."""
    cpu_seconds: float
    """CPU seconds spent on steps since the arm started."""
    success: float
    """Share of puzzles of the split `validation` that greedy play solves."""


class ArmResult(Record):
    """Results of an arm."""

    arm: ArmName
    seed: int
    tuning: Tuning = OWN
    steps: int
    tokens: int
    """Tokens through the model in training, padding included; tokens that are only read for
    sampling also count."""
    samples: int
    """Completions drawn in training, or answers imitated."""
    train_cpu_seconds: float
    cpu_seconds: float
    """CPU seconds including evaluations and the final measurement."""
    outcomes: str = Field(pattern=r"^[01]+$")
    """Outcome of each held-out puzzle, played greedily, in order: `1` solved, `0` not."""
    failures: dict[str, int]
    """Number of episodes that were not solved, by kind of failure."""
    agreement: float | None
    """Share of proposals after which the plan agent did exactly what was proposed; None without
    any."""
    answers: dict[str, dict[str, int]]
    """Most frequent answers of each agent, with their counts."""
    curve: tuple[Point, ...]
    stopped: str = ""
    """Why its training ended early: its next loss or gradient was not finite, and the weights
    before that were measured."""

    @classmethod
    def of(
        cls,
        arm: Arm,
        evaluation: EvaluationResult,
        *,
        steps: int,
        tokens: int,
        samples: int,
        train_cpu_seconds: float,
        cpu_seconds: float,
        curve: tuple[Point, ...],
        stopped: str = "",
    ) -> Self:
        """Build the result from the arm's play of the held-out puzzles."""
        return cls(
            arm=arm.kind,
            seed=arm.seed,
            tuning=arm.tuning,
            steps=steps,
            tokens=tokens,
            samples=samples,
            train_cpu_seconds=train_cpu_seconds,
            cpu_seconds=cpu_seconds,
            outcomes=evaluation.outcomes,
            failures=evaluation.failures,
            agreement=(evaluation.agreed / evaluation.proposals if evaluation.proposals else None),
            answers=evaluation.answers,
            curve=curve,
            stopped=stopped,
        )

    @property
    def solved(self) -> int:
        return self.outcomes.count("1")

    @property
    def success(self) -> float:
        return self.solved / len(self.outcomes)


def write_result(folder: Path, result: ArmResult) -> ArmResult:
    """Write the result into the arm's folder; an arm that has one is finished."""
    folder.mkdir(parents=True, exist_ok=True)
    write_record(folder / RESULT, result)
    return result


def read_result(folder: Path) -> ArmResult | None:
    """Result of a finished arm; None for an unfinished one. Raises `UnreadableModel`."""
    return find_record(
        folder / RESULT, ArmResult, f"remove {folder}, then run the same command again"
    )
