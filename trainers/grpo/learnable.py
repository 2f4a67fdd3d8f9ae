"""Decides whether a sealed group can be learned from. A training from a store and a loop use the
same rules; otherwise one would not be a replay of the other.

The age of a sample is the number of versions by which the policy that sampled it is behind the one
that learns from it. Two rules limit it (AReaL, Fu et al. 2025, arXiv:2505.24298, §5.1). First, a
loop does not start rollouts of a round that is more than η after the current one
(`LoopSettings.rounds_ahead`), so that its runs are trained on at most η versions later. Second,
samples that are too old nevertheless are left out when a batch is made: by `loop.round_groups` for
a loop's own groups, by `stream` for a store's, which may have been recorded without a limit.
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
    """How a step treats a group that is not too old."""
    if not group.has_signal(settings.credit):
        return "zero_variance"
    sequences = (sequence for member in group.members for sequence in member.sequences)
    return (
        "trained" if any(is_in_loss(sequence, settings) for sequence in sequences) else "truncated"
    )


def is_in_loss(sequence: TokenSequence, settings: GrpoSettings) -> bool:
    """Whether the trainer learns from a sequence."""
    return settings.truncated == "keep" or not sequence.truncated


def is_too_old(group: Group, version: int, limit: int | None) -> bool:
    """Whether the weights of `version`, and so all later ones, skip a group: they learn only from
    samples that are at most `limit` versions older (η; None: any number)."""
    return limit is not None and version - group.policy.version > limit


def counts_by_age(groups: Iterable[Group], version: int) -> dict[int, int]:
    """Groups by their age in versions, the youngest first."""
    return dict(sorted(Counter(version - group.policy.version for group in groups).items()))
