"""Where to spend more samples: Reinforce-Ada (Xiong et al. 2025, arXiv:2510.04996).

Instead of the same K samples of every observation, sampling goes on in rounds of K, and ends when
what it has shown is enough to learn from: one success (`positive`), or half of a group of either
kind (`balanced`). Which K are learned from is the trainer's choice
(`trainers.grpo.adaptive_groups`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

Exit = Literal["positive", "balanced"]


class AdaptiveSampling(BaseModel):
    """How long sampling goes on."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    exit_when: Exit
    rounds: int = Field(default=4, ge=1, le=16)
    """At most."""
    success: float | None = Field(default=None, allow_inf_nan=False)
    """A candidate whose reward is at least this is a success. None: one that solves the task, or
    would; a reward of dense parts has no value that says so."""

    def succeeds(self, parts: Mapping[str, float]) -> bool:
        """Whether a candidate with these reward parts is a success. Raises KeyError without the
        part that tells."""
        return parts["sparse"] >= 1.0 if self.success is None else parts["total"] >= self.success

    def wants_more(self, successes: Sequence[bool], size: int, done: int) -> bool:
        """Whether an observation whose samples were so in `done` rounds is sampled once more;
        `size` is K."""
        if done >= self.rounds:
            return False
        good = sum(successes)
        if self.exit_when == "positive":
            return good == 0
        needed = (size + 1) // 2
        return good < needed or len(successes) - good < size - needed
