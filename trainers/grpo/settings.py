"""What a training follows from: two runs with equal settings have equal weights on a CPU. A GPU
adds up in no fixed order, and the last digits of two runs differ."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from loopline.trainers.grpo.advantages import Baseline
from loopline.trainers.grpo.groups import Grouping
from loopline.trainers.grpo.losses import Objective
from loopline.trainers.grpo.rewards import RewardChoice

Sharing = Literal["shared", "per-role"]
"""`shared`: one policy learns from all agents' samples. `per-role`: one for each agent."""
Weights = Literal["full", "lora"]
Precision = Literal["float32", "bfloat16"]
SHARED = "shared"

LEARNING_RATE = 1e-6
"""Of all weights of a model that has learned language: PettingLLMs' settings."""
LORA_RATE = 10.0
"""An adapter learns best at about ten times the rate of all weights (Biderman et al. 2024,
arXiv:2405.09673)."""


class Begin(BaseModel):
    """An earlier version of a policy."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    model: str
    """Folder or hub id of a model, or the folder of an adapter."""
    sha256: str
    """Of its weights."""


class GrpoSettings(BaseModel):
    """One run of `train grpo`, but for where it is written."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    base: str
    """Folder or hub id of the model that policies begin with, or are adapters of."""
    base_sha256: str
    """Of its weights."""
    begins: dict[str, Begin] = Field(default_factory=dict)
    """By policy, what it goes on from; others begin with the base, or an adapter that changes
    nothing."""
    data_sha256: str
    """Of the sealed groups."""
    grouping: Grouping = "at-grpo"
    group_size: int = Field(default=4, ge=2)
    """K."""
    agents: tuple[str, ...] | None = None
    """Whose samples are learned from; None: everybody's."""
    reward: RewardChoice = Field(default_factory=RewardChoice)
    advantage: Baseline = "standardised"
    objective: Objective = Field(default_factory=Objective)
    truncated: Literal["mask", "keep"] = "mask"
    """Whether completions that ran into their limit are learned from (DAPO's overlong filtering:
    they are not). Their rewards count in the group either way."""
    policies: Sharing = SHARED
    weights: Weights = "full"
    rank: int = Field(default=16, ge=1, le=4_096)
    """Of adapters; alpha is twice the rank."""
    batch: int = Field(default=32, ge=1)
    """Groups with a signal per step: per version of the policies."""
    minibatch: int | None = Field(default=None, ge=1)
    """Groups per update of the weights; None: all of the step."""
    epochs: int = Field(default=1, ge=1)
    """Times that the groups are gone through."""
    steps: int | None = Field(default=None, ge=1)
    """Versions to train at most; None: until the groups are used up."""
    staleness: int | None = Field(default=None, ge=0)
    """Versions that a sample may be behind; None: any number."""
    base_version: int = Field(default=0, ge=0)
    """Which version of the policies the base is."""
    learning_rate: float = Field(default=LEARNING_RATE, gt=0)
    """Constant."""
    weight_decay: float = Field(default=0.01, ge=0)
    clip: float = Field(default=1.0, gt=0)
    """Largest norm of the gradient."""
    precision: Precision = "float32"
    """Of the forward pass; trained weights and moments stay float32. Log-probabilities match an
    engine's within 1e-5 only in float32, and those of an engine in bfloat16 within hundredths of a
    nat."""
    piece_tokens: int = Field(default=4_096, ge=64)
    """Tokens, padding included, that go through the model at once: its memory."""
    share_prefixes: bool = True
    """Put what a group's samples begin with through the model once (`prefix_trees`): the same
    losses but for rounding, in a fraction of the time where prompts are longer than answers."""
    threads: int = Field(default=1, ge=1, le=1_024)
    """Of the CPU. Another number adds up in another order, and has other last digits."""
    seed: int = Field(default=1, ge=0, lt=2**63)

    @property
    def base_precision(self) -> Precision:
        """What the base's weights are held in. Beneath adapters they never change, and half the
        bytes are enough; as weights that are trained they would round most updates away."""
        return self.precision if self.weights == "lora" else "float32"

    def policy_of(self, agent: str) -> str:
        """Which policy learns from an agent's samples."""
        return SHARED if self.policies == SHARED else agent
