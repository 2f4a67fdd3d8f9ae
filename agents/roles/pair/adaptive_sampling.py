"""Adaptive sampling, which draws more samples where needed: Reinforce-Ada (Xiong et al. 2025,
arXiv:2510.04996).

Instead of drawing a fixed K samples per observation, sampling continues in rounds of K until there
is enough to learn from: one success (`positive`), or half a group each of successes and failures
(`balanced`). The trainer selects the K samples that it uses
(`loopline.trainers.grpo.adaptive_groups`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

Exit = Literal["positive", "balanced"]

_RIGHT_TEST = "local.right_test"
"""Reward part of a unit tester: 1 for a test that a golden program passes, else 0; missing without
a golden program."""


class AdaptiveSampling(BaseModel):
    """Rule that determines how long sampling continues."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    exit_when: Exit
    rounds: int = Field(default=4, ge=1, le=16)
    """Maximum number of sampling rounds."""
    success: float | None = Field(default=None, allow_inf_nan=False)
    """Minimum reward of a success. None: a candidate that solves the task, or would, is a success,
    and so is a unit tester's right test; dense rewards have no value that marks a success."""

    def succeeds(self, parts: Mapping[str, float]) -> bool:
        """Whether a candidate with these reward parts is a success. Raises KeyError without the
        part that decides."""
        if self.success is not None:
            return parts["total"] >= self.success
        # No test makes a program right: the sparse part is the same for all tests of a turn.
        test_reward = parts.get(_RIGHT_TEST)
        return (parts["sparse"] if test_reward is None else test_reward) >= 1.0

    def wants_more(self, successes: Sequence[bool], size: int, round_count: int) -> bool:
        """Whether to sample the observation again, given its samples after `round_count` rounds;
        `size` is K."""
        if round_count >= self.rounds:
            return False
        good = sum(successes)
        if self.exit_when == "positive":
            return good == 0
        needed = (size + 1) // 2
        return good < needed or len(successes) - good < size - needed
