"""What the demonstration follows from: two with equal settings have equal weights and results."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from agents.environments.game import AGENTS
from agents.environments.plan_path import Difficulty, PlanPathSetting

SETTINGS = "settings.json"
TEST_SEED = 2026
"""Of the puzzles that arms are looked at and measured on: the same for all."""

ArmName = Literal["warm start", "AT-GRPO", "continued SFT"]
WARM_START: ArmName = "warm start"
AT_GRPO: ArmName = "AT-GRPO"
CONTINUED: ArmName = "continued SFT"
ARMS: tuple[ArmName, ...] = (WARM_START, AT_GRPO, CONTINUED)


class NetworkSize(BaseModel):
    """Of the model that begins with random weights. See `trainers.models.Shape`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    hidden: int = 64
    feed_forward: int = 128
    layers: int = 2
    heads: int = 4
    context: int = 256
    spread: float = 0.08
    """Standard deviation of the random matrices; the usual 0.02 is that of far wider ones."""


class WeakTeam(BaseModel):
    """Who is imitated: players that know little, so that there is something to learn."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    noise: float = Field(default=0.2, ge=0, le=1)
    """Probability of any move; else both think of one towards the goal, as if there were no
    walls."""
    follows: float = Field(default=0.5, ge=0, le=1)
    """Probability that the plan agent does what was proposed; else it makes its own move."""
    searches: float = Field(default=0.1, ge=0, le=1)
    """Probability that the tool agent searches, to any depth; else it tries its move."""
    looks: float = Field(default=0.1, ge=0, le=1)
    """Probability that it looks that way instead."""


class Supervised(BaseModel):
    """Imitation of the weak team."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    steps: int = Field(default=120, ge=1)
    """Of the warm start; the control goes on until its tokens are those of AT-GRPO."""
    batch: int = Field(default=64, ge=1)
    """Answers per step."""
    learning_rate: float = Field(default=2e-3, gt=0)
    warmup: int = Field(default=20, ge=1)
    """Steps in which the learning rate rises."""


class Reinforced(BaseModel):
    """AT-GRPO."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    steps: int = Field(default=20, ge=1)
    """Versions of the policy: each plays its own puzzles, to their end."""
    episodes: int = Field(default=48, ge=1)
    """Puzzles per version."""
    candidates: int = Field(default=8, ge=2)
    """K."""
    limit: int = Field(default=12, ge=1)
    """Tokens of one completion."""
    minibatch: int = Field(default=64, ge=1)
    """Groups per update."""
    learning_rate: float = Field(default=5e-4, gt=0)
    entropy: float = Field(default=0.003, ge=0)


class DemoSettings(BaseModel):
    """The whole demonstration."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    seeds: tuple[int, ...] = Field(default=(1, 2, 3), min_length=1)
    puzzle: Difficulty = Difficulty(
        rows=10,
        columns=10,
        setting=PlanPathSetting(turns=16, team=AGENTS, calls=2, search=4, brief=True, view=2),
    )
    network: NetworkSize = NetworkSize()
    team: WeakTeam = WeakTeam()
    supervised: Supervised = Supervised()
    reinforced: Reinforced = Reinforced()
    held_out: int = Field(default=400, ge=1)
    """Puzzles of the split `test` that every arm is measured on at its end."""
    looks: int = Field(default=5, ge=1)
    """Points of a learning curve: greedy success on puzzles of the split `validation`."""
    looked_at: int = Field(default=80, ge=1)
    """Puzzles of each look."""
    checkpoint_every: int = Field(default=10, ge=1)
    """Steps between checkpoints."""
