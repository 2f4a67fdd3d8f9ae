"""How old samples may be: by how many versions the policy that sampled them lies behind the one
that learns from them.

Two rules bound it (AReaL, Fu et al. 2025, arXiv:2505.24298, §5.1). Rollouts are begun only while
accepted + running < (η + version + 1) · batch, so that what is begun now is trained on at most η
versions later, whatever is waiting before it. Work that took longer than was thought is swept out
when a batch is made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from trainers.grpo.groups import Group


@dataclass(frozen=True)
class Staleness:
    """The bound η, in versions; `limit` None is no bound, 0 trains on what the present version
    sampled, and on nothing else."""

    limit: int | None
    batch: int
    """Groups per version."""

    def admitted(self, version: int, accepted: int, running: int) -> int:
        """How many more groups may be begun when `version` is served, `accepted` groups have been
        sealed since version 0 (trained on or waiting) and `running` are in work:
        max(0, (η + version + 1) · batch − accepted − running). Raises ValueError without a bound:
        then the caller's own limits hold."""
        if self.limit is None:
            raise ValueError("without a bound of staleness every rollout is admitted")
        return max(0, (self.limit + version + 1) * self.batch - accepted - running)

    def is_fresh(self, group: Group, version: int) -> bool:
        """Whether the weights of `version` may learn from the group."""
        return self.limit is None or version - group.policy.version <= self.limit


@dataclass(frozen=True)
class Swept:
    """Groups in their order, divided."""

    kept: tuple[Group, ...]
    dropped: tuple[Group, ...]
    """Too old, for now and for ever."""


def sweep(groups: Sequence[Group], version: int, staleness: Staleness) -> Swept:
    """Divide what waits when a batch is made for the weights of `version`."""
    return Swept(
        tuple(group for group in groups if staleness.is_fresh(group, version)),
        tuple(group for group in groups if not staleness.is_fresh(group, version)),
    )


def counts_by_age(groups: Iterable[Group], version: int) -> dict[int, int]:
    """Groups by their age in versions, the youngest first."""
    return dict(sorted(Counter(version - group.policy.version for group in groups).items()))
