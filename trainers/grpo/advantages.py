"""How much better than its group a sample is: pure functions of the rewards of one group.

A group whose rewards are all the same says nothing: every function gives it zeros, and `has_signal`
says so, that it can be dropped, counted, and sampled again (dynamic sampling of DAPO, Yu et al.
2025, arXiv:2503.14476, §3.2).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal

Baseline = Literal["standardised", "centred", "leave-one-out"]

SMALLEST_SPREAD = 1e-9
"""Rewards that differ by less, in parts of the largest, are the same: what is left of sums that
were added up in another order would else be divided by itself and weigh as much as a success."""


def has_signal(rewards: Sequence[float]) -> bool:
    """Whether some sample of the group was better than another."""
    spread = max(rewards) - min(rewards)
    return spread > SMALLEST_SPREAD * max(1.0, *(abs(reward) for reward in rewards))


def standardise(rewards: Sequence[float]) -> list[float]:
    """A_i = (R_i − mean R) / std R, with the sample's standard deviation (K − 1).

    GRPO (Shao et al. 2024, arXiv:2402.03300, §4.1) and AT-GRPO (arXiv 2510.11062, Algorithm 1).
    """
    apart = centre(rewards)
    if not has_signal(rewards):
        return apart
    deviation = math.sqrt(
        math.fsum(difference * difference for difference in apart) / (len(apart) - 1)
    )
    return [difference / deviation for difference in apart]


def centre(rewards: Sequence[float]) -> list[float]:
    """A_i = R_i − mean R. Dr.GRPO (Liu et al. 2025, arXiv:2503.20783, §3.2): a division by the
    deviation would make the easiest and the hardest instances weigh the most."""
    if not has_signal(rewards):
        return [0.0] * len(rewards)
    mean = math.fsum(rewards) / len(rewards)
    return [reward - mean for reward in rewards]


def leave_one_out(rewards: Sequence[float]) -> list[float]:
    """A_i = R_i − mean of the others' = K / (K − 1) · (R_i − mean R).

    RLOO (Kool et al. 2019; Ahmadian et al. 2024, arXiv:2402.14740, §2.3): a sample is not part of
    its own baseline, which leaves the gradient without bias.
    """
    if not has_signal(rewards):
        return [0.0] * len(rewards)
    total, others = math.fsum(rewards), len(rewards) - 1
    return [reward - (total - reward) / others for reward in rewards]


ADVANTAGES: dict[Baseline, Callable[[Sequence[float]], list[float]]] = {
    "standardised": standardise,
    "centred": centre,
    "leave-one-out": leave_one_out,
}
