"""How far two lists of tokens begin alike: asked of every prompt and everything in memory, so each
answer is a few comparisons of slices and not one of each token."""

from __future__ import annotations

from collections.abc import Sequence


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """How many tokens two lists have in common at their beginnings."""
    low, high = 0, min(len(a), len(b))
    if a[:high] == b[:high]:
        return high
    while low + 1 < high:
        middle = (low + high) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle
    return low


def shares_more(tokens: Sequence[int], ids: Sequence[int], count: int) -> bool:
    """Whether two lists have more than `count` tokens in common at their beginnings."""
    return len(tokens) > count and len(ids) > count and tokens[: count + 1] == ids[: count + 1]
