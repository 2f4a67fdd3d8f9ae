"""What a sealed group is good for. A training from a store and a loop ask the same, or one would
not be the other's replay."""

from __future__ import annotations

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
