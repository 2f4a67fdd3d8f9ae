"""Where to spend more samples: Reinforce-Ada (Xiong et al. 2025, arXiv:2510.04996).

Instead of the same K samples for every prompt, sampling goes on in rounds, and a prompt leaves
when what it has shown is enough to learn from: one success (`positive`), or half of a group of
either kind (`balanced`). Then K of the samples are kept, as evenly mixed as they allow; baseline
and deviation are those of everything that was sampled, so that picking does not bend them.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Literal

from trainers.grpo.advantages import standardised

Exit = Literal["positive", "balanced"]


def wants_more(
    rewards: Sequence[float],
    *,
    size: int,
    exit_when: Exit,
    rounds: int,
    max_rounds: int,
    success: float,
) -> bool:
    """Whether a prompt with these rewards after `rounds` rounds is sampled once more.

    `size` is K; a reward of at least `success` is one. A group that came whole from one kind is
    not trained on: see `advantages.has_signal`.
    """
    if rounds >= max_rounds:
        return False
    good = sum(reward >= success for reward in rewards)
    if exit_when == "positive":
        return good < 1 or len(rewards) < size
    needed = (size + 1) // 2
    return good < needed or len(rewards) - good < size - needed


def keep(rewards: Sequence[float], size: int, success: float, seed: int) -> list[int]:
    """Which K samples are trained on: half of them successes and half of them not, or, where one
    kind has fewer, all of that kind. Indices in order; the same for the same seed."""
    rng = random.Random(seed)
    kinds = (
        [at for at, reward in enumerate(rewards) if reward >= success],
        [at for at, reward in enumerate(rewards) if reward < success],
    )
    for kind in kinds:
        rng.shuffle(kind)
    good = min(len(kinds[0]), max((size + 1) // 2, size - len(kinds[1])))
    return sorted(kinds[0][:good] + kinds[1][: size - good])


def advantages(rewards: Sequence[float], kept: Sequence[int]) -> list[float]:
    """(R_i − mean) / std of the kept samples, with mean and standard deviation (K − 1) of all that
    were sampled; zeros where all rewards are the same."""
    everything = standardised(rewards)
    return [everything[at] for at in kept]
