"""The arms of the demonstration, and what became of each."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from trainers.errors import UnreadableModel
from trainers.grpo.demo.settings import AT_GRPO, CONTINUED, WARM_START, ArmName

RESULT = "result.json"


class Point(BaseModel):
    """One look at an arm in training."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    step: int
    tokens: int
    """Through the model since the arm began."""
    cpu_seconds: float
    """Spent on steps since the arm began."""
    success: float
    """Greedy, on puzzles of the split `validation`."""


class ArmResult(BaseModel):
    """What became of an arm."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    arm: ArmName
    seed: int
    steps: int
    tokens: int
    """Through the model in training, padding included; those only read to sample count as well."""
    train_cpu_seconds: float
    cpu_seconds: float
    """With looks and the last measurement."""
    outcomes: str = Field(pattern=r"^[01]+$")
    """Of the held-out puzzles, greedily, in order: `1` solved, `0` not."""
    failures: dict[str, int]
    """How the episodes that were not solved went."""
    agreement: float | None
    """How often the plan agent did exactly what was proposed, of the times that something was."""
    said: dict[str, dict[str, int]]
    """By agent, its most frequent answers and how often it gave them."""
    curve: tuple[Point, ...]

    @property
    def solved(self) -> int:
        return self.outcomes.count("1")

    @property
    def success(self) -> float:
        return self.solved / len(self.outcomes)


class Arm(BaseModel):
    """Which arm of which seed."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: ArmName
    seed: int

    @property
    def name(self) -> str:
        return f"seed {self.seed}, {self.kind}"

    def folder(self, output: Path) -> Path:
        """Where it is written."""
        return output / f"seed-{self.seed}" / self.kind.lower().replace(" ", "-")

    @property
    def needs(self) -> tuple[Arm, ...]:
        """The arms that must have a result before: a beginning, and how much compute to spend."""
        before: dict[ArmName, tuple[ArmName, ...]] = {
            WARM_START: (),
            AT_GRPO: (WARM_START,),
            CONTINUED: (WARM_START, AT_GRPO),
        }
        return tuple(Arm(kind=kind, seed=self.seed) for kind in before[self.kind])


def read_result(folder: Path) -> ArmResult | None:
    """Of a finished arm; None if it is not finished. Raises `UnreadableModel`."""
    path = folder / RESULT
    if not path.exists():
        return None
    try:
        return ArmResult.model_validate_json(path.read_bytes())
    except ValidationError as error:
        why = error.errors()[0]["msg"]
        raise UnreadableModel(f"{path} is damaged ({why}); --restart begins anew") from error
