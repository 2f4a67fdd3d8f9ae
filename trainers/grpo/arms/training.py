"""The numbers that determine a training. Each game has its own, since games take different times to
learn. All arms of a game have the same ones, except for an arm's own `tuning`."""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from loopline.agents.environments.game import Scheme
from loopline.trainers.grpo.settings import Shape


class NetworkSize(BaseModel):
    """Size of a model that starts from random weights. See
    `loopline.trainers.core.models.Shape`."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    hidden: int = Field(default=64, ge=1, le=8192)
    feed_forward: int = Field(default=128, ge=1, le=65_536)
    layers: int = Field(default=2, ge=1, le=256)
    heads: int = Field(default=4, ge=1, le=256)
    context: int = Field(default=256, ge=1, le=131_072)
    spread: float = Field(default=0.08, gt=0)
    """Standard deviation of the random matrices; the usual 0.02 is for far wider ones."""

    @model_validator(mode="after")
    def _require_even_heads(self) -> Self:
        """Require an even head size: rotary embeddings rotate pairs of a head's numbers."""
        if self.hidden % (2 * self.heads):
            raise ValueError(
                f"hidden {self.hidden} is not a multiple of 2 × heads, which is {2 * self.heads}"
            )
        return self


class Supervised(BaseModel):
    """Imitation of the weak team."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    steps: int = Field(default=120, ge=1)
    """Steps of the warm start; the control continues until it has used as many tokens as
    AT-GRPO."""
    batch: int = Field(default=64, ge=1)
    """Answers per step."""
    learning_rate: float = Field(default=2e-3, gt=0)
    warmup: int = Field(default=20, ge=1)
    """Steps in which the learning rate rises."""


class Reinforced(BaseModel):
    """GRPO in every form."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    steps: int = Field(default=20, ge=1)
    """Versions of the policy: each plays its own puzzles to their end."""
    episodes: int = Field(default=48, ge=1)
    """Puzzles per version."""
    candidates: int = Field(default=8, ge=2)
    """Completions per state (K)."""
    limit: int = Field(default=12, ge=1)
    """Tokens of one completion."""
    minibatch: int = Field(default=64, ge=1)
    """Groups of K completions per update."""
    learning_rate: float = Field(default=5e-4, gt=0)
    """Learning rate of all weights; an adapter's is `loopline.trainers.grpo.settings.LORA_RATE`
    times that."""
    schedule: Shape = "constant"
    """How the learning rate changes: constant, or falling to 0 at the end (linear, cosine)."""
    entropy: float = Field(default=0.003, ge=0)
    scheme: Scheme = "paper"
    """Reward scheme of actions: see `loopline.agents.environments.game.Scheme`."""
    rank: int = Field(default=16, ge=1)
    """Rank of adapters."""


class Dagger(BaseModel):
    """Imitation of a player that knows the solution, in the states that the team reaches."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    steps: int = Field(default=300, ge=1)
    """Steps: each plays its own puzzles to their end, and learns from all of their states."""
    episodes: int = Field(default=64, ge=1)
    """Puzzles per step."""
    mixed: float = Field(default=0.5, ge=0, le=1)
    """First share of the training in which the expert acts in a part of the states: in all of them
    at first, in none at the end of this share."""
    passes: int = Field(default=2, ge=1)
    """Times that an answer is imitated."""
    batch: int = Field(default=48, ge=1)
    """Answers per update."""
    learning_rate: float = Field(default=3e-3, gt=0)
    """Highest learning rate; it falls to 0 at the end."""
    warmup: int = Field(default=4, ge=0)
    """Steps in which the learning rate rises."""
    spelled: float = Field(default=0.0, ge=0, le=1)
    """Probability that a word of an imitated prompt is read letter by letter, as words are that no
    training puzzle has (BPE-dropout, Provilkov et al. 2020, arXiv:1910.13267)."""
    dropped: float = Field(default=0.0, ge=0, le=1)
    """Probability that a word of an imitated prompt is left out (Wei and Zou 2019,
    arXiv:1901.11196)."""
    unchanged: float = Field(default=0.3, ge=0, le=1)
    """Share of the imitated prompts in which no word is spelled or left out."""
    prompt_loss_weight: float = Field(default=0.0, ge=0)
    """Weight of the prompts' tokens in the loss, relative to the answers' (Huerta-Enochian and Ko
    2024, arXiv:2401.13586). To predict a text, a model must learn which words are used alike."""


class Training(BaseModel):
    """All numbers of a game's training."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    network: NetworkSize = NetworkSize()
    supervised: Supervised = Supervised()
    reinforced: Reinforced = Reinforced()
    dagger: Dagger = Dagger()
