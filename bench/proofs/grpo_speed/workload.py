"""The groups from which every trainer of `bench grpo-speed` learns, and the clock of its steps."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from functools import cached_property
from typing import Any

WARM = 2
"""Steps before the measured ones, in which memory is allocated and kernels are chosen."""
PIECE_TOKENS = 4_096
"""Tokens that go through the model at once in every trainer: `train grpo`'s own default."""
CLIP = 1.0
LEARNING_RATE = 1e-6
SHORTEST = 0.5
"""Shortest length as a share of the longest: prompts and completions have all lengths between
them."""


@dataclass(frozen=True)
class Sampled:
    """A group of samples: one prompt, K completions."""

    prompt: tuple[int, ...]
    completions: tuple[tuple[int, ...], ...]
    rewards: tuple[float, ...]


@dataclass(frozen=True)
class StepWork:
    """Steps with one batch of groups; these fields determine everything."""

    model: str
    groups: int
    candidates: int
    prompt: int
    """Tokens of the longest prompt that may be drawn."""
    completion: int
    """Tokens of the longest completion that may be drawn."""
    steps: int
    """Measured steps."""
    seed: int
    vocabulary: int

    @cached_property
    def batch(self) -> tuple[Sampled, ...]:
        """Groups with random ids and rewards: a step's time depends on neither."""
        rng = random.Random(self.seed)

        def ids(longest: int) -> tuple[int, ...]:
            length = rng.randint(max(1, round(longest * SHORTEST)), longest)
            return tuple(rng.randrange(3, self.vocabulary) for _ in range(length))

        return tuple(
            Sampled(
                ids(self.prompt),
                tuple(ids(self.completion) for _ in range(self.candidates)),
                tuple(rng.random() for _ in range(self.candidates)),
            )
            for _ in range(self.groups)
        )

    @property
    def longest_prompt(self) -> int:
        """Tokens of the longest prompt in the batch."""
        return max(len(group.prompt) for group in self.batch)

    @property
    def longest_completion(self) -> int:
        """Tokens of the longest completion in the batch."""
        return max(len(completion) for group in self.batch for completion in group.completions)

    @property
    def tokens(self) -> int:
        """Tokens of all samples of a step, each with its prompt, without padding."""
        return sum(
            len(group.prompt) + len(completion)
            for group in self.batch
            for completion in group.completions
        )


class StepClock:
    """Records the time whenever an optimizer has made a step. Every trainer gets the same torch
    hook, so that all work between its steps counts."""

    def __init__(self) -> None:
        from torch.optim.optimizer import register_optimizer_step_post_hook

        self._marks: list[float] = []
        register_optimizer_step_post_hook(self._record_step)

    def seconds(self) -> float:
        """Mean seconds of a step, without the first ones."""
        return (self._marks[-1] - self._marks[WARM - 1]) / (len(self._marks) - WARM)

    def _record_step(self, *arguments: Any) -> None:
        del arguments
        self._marks.append(time.perf_counter())
