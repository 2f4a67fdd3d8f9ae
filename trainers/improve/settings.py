"""The settings that determine the loop."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from loopline.agents.records import Record
from loopline.bus import pool_of
from loopline.trainers.glpft.settings import Schedules

CANDIDATE = "candidate"


class TrainingSettings(Record):
    """How each candidate is trained, on all escalations so far: an adapter from the pool's own
    model, or all weights from the serving version."""

    model: str = "micro:slm"
    """Model that the pool serves."""
    weights: Literal["full", "lora"] = "lora"
    rank: int = Field(default=16, ge=1)
    schedules: Schedules = "published"
    rate: float = Field(default=1.0, gt=0)
    batch: int = Field(default=48, ge=1)
    tokens: int | None = Field(default=None, ge=1)
    """Tokens that go through the model in one round: the bound of its compute."""
    confirmed: bool = False
    seed: int = 1

    def arguments(self, store: Path, output: Path, begin: Path | None) -> list[str]:
        """Arguments of `train distill`. `begin`: the serving weights; None for the pool's own
        model."""
        model = self.model if begin is None or self.weights == "lora" else str(begin)
        arguments = ["distill", model, "--from-store", str(store), "--output", str(output)]
        for name in ("weights", "schedules", "rate", "batch", "tokens", "seed"):
            value = getattr(self, name)
            if value is not None:
                arguments += [f"--{name}", str(value)]
        if self.weights == "lora":
            arguments += ["--rank", str(self.rank)]
        return [*arguments, "--validation", "0", *(["--confirmed"] if self.confirmed else [])]


class LoopSettings(Record):
    """Everything that determines a loop, except its output folder."""

    policy: str = Field(default="slm/improve", pattern=r"^[^/]+/[^/]+$")
    """Policy as which the cascade's small model is served: pool/adapter."""
    training: TrainingSettings = TrainingSettings()
    every: int = Field(default=100, ge=1)
    """New escalations that start a round."""
    held_back: int = Field(default=400, ge=20)
    """Latest audited questions on which versions are compared."""
    least_held_back: int = Field(default=60, ge=20)
    """Minimum number of questions for a comparison; with fewer, no round starts."""
    margin: float = Field(default=0.02, ge=0, lt=1)
    """Share of right answers by which a candidate may be worse, with 95 % confidence."""
    alpha: float = Field(default=0.1, gt=0, lt=1)
    """Bound of the share of all questions whose small answer is accepted and wrong."""
    delta: float = Field(default=0.05, gt=0, lt=1)
    """Probability with which that bound may be broken."""
    wait: float = Field(default=120.0, gt=0)
    """Seconds that workers have to load a version."""

    @property
    def pool(self) -> str:
        return pool_of(self.policy)

    @property
    def candidate(self) -> str:
        """The policy as which a version is tried out before it serves."""
        return f"{self.policy}-{CANDIDATE}"
