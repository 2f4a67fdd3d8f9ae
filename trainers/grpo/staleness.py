"""How old samples may be: by how many versions the policy that sampled them lies behind the one
that learns from them.

Two rules bound it (AReaL, Fu et al. 2025, arXiv:2505.24298, §5.1). A loop keeps to the first one,
counted in rounds: it begins no rollouts of a round that is more than η after the current one
(`LoopSettings.rounds_ahead`), so that what is begun now is trained on at most η versions later.
What is older all the same is left out as a batch is made: of a loop's own groups by
`loop.round_groups`, of a store's, which may have been recorded without a bound, by `stream`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from loopline.trainers.grpo.groups import Group


def is_too_old(group: Group, version: int, limit: int | None) -> bool:
    """Whether the weights of `version`, and so all later ones, don't learn from a group: they learn
    from nothing that is more than `limit` versions older (η; None: any number)."""
    return limit is not None and version - group.policy.version > limit


def counts_by_age(groups: Iterable[Group], version: int) -> dict[int, int]:
    """Groups by their age in versions, the youngest first."""
    return dict(sorted(Counter(version - group.policy.version for group in groups).items()))
