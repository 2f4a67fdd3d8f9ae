"""What a sealed group is good for. A training from a store and a loop ask the same, or one would
not be the other's replay.

How old samples may be: by how many versions the policy that sampled them lies behind the one that
learns from them. Two rules bound it (AReaL, Fu et al. 2025, arXiv:2505.24298, §5.1). A loop keeps
to the first one, counted in rounds: it begins no rollouts of a round that is more than η after the
current one (`LoopSettings.rounds_ahead`), so that what is begun now is trained on at most η
versions later. What is older all the same is left out as a batch is made: of a loop's own groups by
`loop.round_groups`, of a store's, which may have been recorded without a bound, by `stream`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Literal

from loopline.trainers.grpo.groups import Group
from loopline.trainers.grpo.sequences import TokenSequence
from loopline.trainers.grpo.settings import GrpoSettings

Worth = Literal["trained", "zero_variance", "truncated"]
"""`zero_variance`: all rewards are the same. `truncated`: they differ, but nothing is left to
learn from."""

TRUNCATED = "group whose completions all ran into their limit"


def group_worth(group: Group, settings: GrpoSettings) -> Worth:
    """What a step makes of a group that is not too old."""
    if not group.has_signal(settings.credit):
        return "zero_variance"
    sequences = (sequence for member in group.members for sequence in member.sequences)
    return (
        "trained" if any(is_in_loss(sequence, settings) for sequence in sequences) else "truncated"
    )


def is_in_loss(sequence: TokenSequence, settings: GrpoSettings) -> bool:
    """Whether a sequence is learned from."""
    return settings.truncated == "keep" or not sequence.truncated


def is_too_old(group: Group, version: int, limit: int | None) -> bool:
    """Whether the weights of `version`, and so all later ones, don't learn from a group: they learn
    from nothing that is more than `limit` versions older (η; None: any number)."""
    return limit is not None and version - group.policy.version > limit


def counts_by_age(groups: Iterable[Group], version: int) -> dict[int, int]:
    """Groups by their age in versions, the youngest first."""
    return dict(sorted(Counter(version - group.policy.version for group in groups).items()))
