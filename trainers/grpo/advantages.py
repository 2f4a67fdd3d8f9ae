"""How much better a sample is than its group: pure functions of the rewards of one group.

A group whose rewards are all equal carries no signal. Every function returns zeros for it, and
`has_signal` is false, so that the caller can drop it, count it, and sample it again (dynamic
sampling of DAPO, Yu et al. 2025, arXiv:2503.14476, §3.2).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal

Baseline = Literal["standardised", "centred", "leave-one-out", "best"]

SMALLEST_SPREAD = 1e-9
"""Rewards that differ by less than this fraction of the largest are equal. Otherwise, the rounding
error of sums in different order would be divided by itself and weigh as much as a success."""


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
    its own baseline, which keeps the gradient unbiased.
    """
    if not has_signal(rewards):
        return [0.0] * len(rewards)
    total, others = math.fsum(rewards), len(rewards) - 1
    return [reward - (total - reward) / others for reward in rewards]


def best_only(rewards: Sequence[float]) -> list[float]:
    """A_i = 1 for the best samples of the group and 0 for the others: expert iteration with the
    best of K as the expert (Anthony et al. 2017, arXiv:1705.08439), also called rejection-sampling
    fine-tuning."""
    if not has_signal(rewards):
        return [0.0] * len(rewards)
    best = max(rewards)
    return [float(not has_signal((reward, best))) for reward in rewards]


def discounted_returns(rewards: Sequence[float | None], discount: float) -> list[float | None]:
    """G_t = Σ_{k ≥ t} γ^(k − t) · r_k of each turn; a turn without a reward adds 0. None for a turn
    if neither it nor a later one has a reward."""
    returns: list[float | None] = []
    later: float | None = None
    for reward in reversed(rewards):
        if reward is not None or later is not None:
            later = (reward or 0.0) + discount * (later or 0.0)
        returns.append(later)
    return returns[::-1]


def turn_advantages(
    members: Sequence[Sequence[float | None]],
    advantage: Callable[[Sequence[float]], list[float]],
    discount: float,
) -> list[list[float]]:
    """A^turn_{i,t} of each member's t-th turn, from the members' rewards by turn: `advantage` over
    the returns of all members whose t-th turn has one. 0 if fewer than two have one (MT-GRPO, Zeng
    et al. 2025, arXiv:2505.11821, §4.2, with discounted returns in place of one intermediate
    reward)."""
    returns = [discounted_returns(rewards, discount) for rewards in members]
    advantages = [[0.0] * len(rewards) for rewards in members]
    for turn in range(max(map(len, returns), default=0)):
        rivals = [
            (number, value)
            for number, member in enumerate(returns)
            if turn < len(member) and (value := member[turn]) is not None
        ]
        if len(rivals) < 2:
            continue
        values = advantage([value for _, value in rivals])
        for (number, _), value in zip(rivals, values, strict=True):
            advantages[number][turn] = value
    return advantages


ADVANTAGES: dict[Baseline, Callable[[Sequence[float]], list[float]]] = {
    "standardised": standardise,
    "centred": centre,
    "leave-one-out": leave_one_out,
    "best": best_only,
}
