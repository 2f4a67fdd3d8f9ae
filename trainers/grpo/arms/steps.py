"""Types that both ways of training share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class StepFacts:
    """Facts about a finished step."""

    tokens: int
    """Tokens that went through the model, for sampling or learning, padding included. The pass that
    scores samples before the first of several updates is not counted."""
    samples: int
    """Completions that were drawn, or answers that were imitated."""
    curves: dict[str, float]
    """Values by the name of their curve."""
    message: str
    """Text of the progress line."""


class Steps(Protocol):
    """A training, step by step. A step is determined only by the weights, its number and the
    finished share of the training, so that resuming needs nothing else."""

    def step(self, number: int, done: float) -> StepFacts:
        """Take the step after `number` others, the finished share `done` of all; below 1."""
        ...
