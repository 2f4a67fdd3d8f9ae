"""Options of `train improve`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from loopline.runtime.config.options import Argument, Option
from loopline.trainers.core.command_options import DeploymentOptions, TrackingOptions
from loopline.trainers.glpft.settings import Schedules
from loopline.trainers.improve.settings import LoopSettings, TrainingSettings

_LOOP = LoopSettings()


class ImproveOptions(DeploymentOptions, TrackingOptions):
    """A loop on a running deployment, and its bounds."""

    panel = "Loop"

    output: Annotated[Path, Argument()]
    """Folder of the rounds. The same command resumes from it."""
    policy: str = Field(default=_LOOP.policy, pattern=r"^[^/]+/[^/]+$")
    """Policy of the cascade's small model: pool/adapter."""
    every: int = Field(default=_LOOP.every, ge=1)
    """New escalations that start a round."""
    held_back: int = Field(default=_LOOP.held_back, ge=20)
    """Latest audited questions on which versions are compared."""
    margin: float = Field(default=_LOOP.margin, ge=0, lt=1)
    """Share of right answers by which a candidate may be worse, with 95 % confidence."""
    alpha: float = Field(default=_LOOP.alpha, gt=0, lt=1)
    """Bound of the share of all questions whose small answer is accepted and wrong."""
    delta: float = Field(default=_LOOP.delta, gt=0, lt=1)
    """Probability with which that bound may be broken."""
    confirmed: bool = False
    """Learn only answers that feedback marks as right; otherwise also those without feedback."""
    weights: Literal["full", "lora"] = "lora"
    """Train all weights, or an adapter."""
    rank: int = Field(default=16, ge=1)
    """LoRA rank; alpha is twice the rank."""
    schedules: Schedules = "published"
    """Learning rates and epochs: for a pretrained language model, or for a micro model."""
    rate: float = Field(default=1.0, gt=0)
    """Factor of all learning rates."""
    batch: int = Field(default=48, ge=1)
    """Rows per step."""
    tokens: Annotated[int | None, Option(default="as many as the epochs need")] = Field(
        default=None, ge=1
    )
    """Tokens that go through the model in one round."""
    look: float = Field(default=30.0, ge=0.1, le=86_400)
    """Seconds between two checks of whether a round is due."""
    once: bool = False
    """Check once, and take a round if it is due."""
    max_rounds: Annotated[int | None, Option(default="no bound", panel="Bounds")] = Field(
        default=None, ge=1
    )
    """Number of rounds, including earlier ones, after which it ends."""
    max_cpu_minutes: Annotated[float | None, Option(default="no bound", panel="Bounds")] = Field(
        default=None, gt=0
    )
    """CPU time of all trainings after which it ends."""
    max_usd: Annotated[float | None, Option(default="no bound", panel="Bounds")] = Field(
        default=None, gt=0
    )
    """US dollars of all comparisons after which it ends."""

    def loop(self, model: str) -> LoopSettings:
        """Settings of the loop, with the model that the pool serves."""
        names = set(TrainingSettings.model_fields) & set(ImproveOptions.model_fields)
        training = TrainingSettings(model=model, **{name: getattr(self, name) for name in names})
        names = set(LoopSettings.model_fields) & set(ImproveOptions.model_fields)
        return LoopSettings(
            training=training, **{name: getattr(self, name) for name in names - {"wait"}}
        )
