"""Learning from the order of a group's samples and not from their distances: DPO on the pairs of a
sealed group, or on the pairs that statistical rejection sampling leaves (RSO).

    L = mean over pairs of −log σ(m),   m = β·[log π_θ/π_ref(better) − log π_θ/π_ref(worse)]

Its gradient is −Σ c_i · ∇log π_θ(i) with the weights c below, so that each micro-batch needs only
its own sequences, even if their partners are elsewhere.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import TYPE_CHECKING

from loopline.trainers.grpo.advantages import has_signal

if TYPE_CHECKING:
    import torch

Pair = tuple[int, int]
"""Indices of the better and of the worse sample."""


def preference_pairs(rewards: Sequence[float]) -> list[Pair]:
    """All pairs in which one sample is better than the other."""
    return [
        (better, worse)
        for better in range(len(rewards))
        for worse in range(len(rewards))
        if rewards[better] > rewards[worse] and has_signal((rewards[better], rewards[worse]))
    ]


def rejection_sampled(rewards: Sequence[float], beta: float, count: int, seed: str) -> list[int]:
    """Indices of `count` samples drawn as from π*(y) ∝ π(y)·exp(r(y)/β): each remaining sample is
    accepted with probability exp((r − r_max)/β), with r_max over the remaining ones, until there
    are enough (RSO, Liu et al. 2023, arXiv:2309.06657, Algorithm 1). The same for the same seed."""
    rng = random.Random(seed)
    waiting, accepted = list(range(len(rewards))), list[int]()
    while waiting and len(accepted) < count:
        highest = max(rewards[at] for at in waiting)
        # The best remaining sample is always accepted, so the loop terminates.
        drawn = [at for at in waiting if rng.random() < math.exp((rewards[at] - highest) / beta)]
        accepted += drawn[: count - len(accepted)]
        waiting = [at for at in waiting if at not in drawn]
    return sorted(accepted)


def preference_weights(
    log_ratios: torch.Tensor, pairs: Sequence[Pair], beta: float
) -> torch.Tensor:
    """c [samples], detached, from log π_θ − log π_ref of each whole sample: the sum of β·σ(−m) over
    the pairs in which it is better, minus the sum over the pairs in which it is worse (DPO,
    Rafailov et al. 2023, arXiv:2305.18290, eq. 7 and its gradient)."""
    import torch

    ratios = log_ratios.detach()
    weights = torch.zeros_like(ratios)
    if not pairs:
        return weights
    better, worse = torch.tensor(pairs, device=ratios.device).T
    pull = beta * torch.sigmoid(-beta * (ratios[better] - ratios[worse]))
    return weights.index_add(0, better, pull).index_add(0, worse, -pull)
