"""The settings that determine the loop of a team that shares its weights."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from loopline.agents.records import Record
from loopline.bus import pool_of
from loopline.trainers.glpft.settings import Schedules
from loopline.trainers.improve.settings import CANDIDATE

STAGE = "multitask"
"""Method of the training, and folder of its result."""


class TeamLoopSettings(Record):
    """Everything that determines a loop, except its output folder."""

    policy: str = Field(default="umi/improve", pattern=r"^[^/]+/[^/]+$")
    """Policy as which all roles are served: pool/adapter."""
    model: str = "micro:umi"
    """Model that the pool serves."""
    schedules: Schedules = "micro"
    rate: float = Field(default=0.15, gt=0)
    """Factor of all learning rates."""
    batch: int = Field(default=16, ge=1)
    """Rows per step."""
    tokens: int = Field(default=1_500_000, ge=1)
    """Tokens that go through the model in one round: the bound of its compute."""
    seed: int = 1
    every: int = Field(default=100, ge=1)
    """New lessons that start a round."""
    margin: float = Field(default=0.02, ge=0, lt=1)
    """Share of solved instructions by which a candidate may be worse at the new kinds, with 95 %
    confidence."""
    old_margin: float = Field(default=0.03, ge=0, lt=1)
    """Margin at the old kinds, using only the estimate: an interval would be too wide."""
    least: int = Field(default=20, ge=1)
    """Instructions of either kind; with fewer the candidate does not pass."""
    wait: float = Field(default=120.0, gt=0)
    """Seconds that workers have to load a version."""

    @property
    def pool(self) -> str:
        return pool_of(self.policy)

    @property
    def candidate(self) -> str:
        """The policy as which a version is tried out before it serves."""
        return f"{self.policy}-{CANDIDATE}"

    def arguments(self, data: Path, output: Path, begin: str) -> list[str]:
        """Arguments of `train glpft`. `begin`: the model from whose weights it starts."""
        arguments = ["glpft", str(output), "--data", str(data), "--base", begin]
        for name in ("schedules", "rate", "batch", "tokens", "seed"):
            arguments += [f"--{name}", str(getattr(self, name))]
        return [*arguments, "--method", STAGE, "--weights", "full", "--validation", "0"]
