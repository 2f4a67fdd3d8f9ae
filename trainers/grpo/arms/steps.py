"""What the two ways of training have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class StepFacts:
    """Facts about one step that was taken."""

    tokens: int
    """Tokens that went through the model to be sampled, or to be learned from, padding included.
    The pass that scores samples before the first of several updates is not counted."""
    samples: int
    """Completions that were drawn, or answers that were imitated."""
    curves: dict[str, float]
    """Values by the name of their curve."""
    message: str
    """Text of the progress line."""


class Steps(Protocol):
    """A training, step by step. A step is determined by the weights and its number alone, so that
    nothing else is needed to resume."""

    def step(self, number: int) -> StepFacts:
        """Take the step after `number` others."""
        ...
