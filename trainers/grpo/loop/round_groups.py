"""Sealed groups of a round's trajectories, and which of them are learned from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from loopline.agents.records import Trajectory
from loopline.trainers.data.json_files import Skipped
from loopline.trainers.data.store import BROKEN
from loopline.trainers.grpo.groups import Group, Sealing, seal
from loopline.trainers.grpo.learnable import group_worth
from loopline.trainers.grpo.loop.run_directory import Fate, GroupRecord
from loopline.trainers.grpo.settings import GrpoSettings
from loopline.trainers.grpo.stream import StepBatch, order_groups

_SHOWN = 240


class ExclusionCount(NamedTuple):
    """Number of things left out for one reason."""

    reason: str
    times: int
    example: str
    """Place of the first one, and what happened to it."""


@dataclass(frozen=True)
class RoundGroups:
    """The groups of a round so far."""

    groups: tuple[tuple[Group, GroupRecord], ...]
    """Groups with their records. A group has the trainer's policy version, its record the
    deployment's."""
    left_out: tuple[Skipped, ...]

    def of(self, fate: Fate) -> list[Group]:
        return [group for group, record in self.groups if record.fate == fate]

    @property
    def counts(self) -> Counter[Fate]:
        return Counter(record.fate for _, record in self.groups)

    @property
    def reasons(self) -> list[ExclusionCount]:
        """Reasons for leaving samples out, the most frequent first."""
        first: dict[str, Skipped] = {}
        for exclusion in self.left_out:
            first.setdefault(exclusion.reason, exclusion)
        counted = Counter(exclusion.reason for exclusion in self.left_out)
        return [
            ExclusionCount(reason, count, _skip_text(first[reason]))
            for reason, count in counted.most_common()
        ]

    @property
    def broken(self) -> list[ExclusionCount]:
        """Reasons that count runs that were broken off."""
        return [exclusion for exclusion in self.reasons if exclusion.reason.startswith(BROKEN)]

    def batch(self, version: int, seed: int) -> StepBatch:
        """Batch of the step that learns from the round: the same groups in the same order as in a
        training from the store with the same staleness and a batch that is not smaller."""
        fates = {record.id: record.fate for _, record in self.groups}
        # Skipped groups are included: they have a place in the order of a replay too.
        fresh = [*self.of("trained"), *self.of("zero_variance"), *self.of("truncated")]
        by_fate = [(fates[group.id], group) for group in order_groups(fresh, seed, 0)]
        return StepBatch(
            version=version,
            groups=tuple(group for fate, group in by_fate if fate == "trained"),
            zero_variance=tuple(group for fate, group in by_fate if fate == "zero_variance"),
            stale=self.counts["stale"] + self.counts["foreign"],
            truncated=self.counts["truncated"],
        )


def seal_round(
    trajectories: Sequence[Trajectory],
    sealing: Sealing,
    rounds: Mapping[tuple[str, int], int],
    *,
    first: int,
    number: int,
    settings: GrpoSettings,
    learning: Collection[str] | None = None,
) -> RoundGroups:
    """Seal the runs of round `number`. `rounds` maps each (policy, number) of the deployment to the
    round that made it; for the trainer, the version of round n is `first` + n. `learning` are the
    policies of the training that learn in the round; None for all."""
    reading = seal(trajectories, sealing)
    limit = settings.staleness or 0
    group_records: list[tuple[Group, GroupRecord]] = []
    for group in reading.records:
        policy = group.policy.adapter or group.policy.name
        source_round = rounds.get((policy, group.policy.version))
        fate: Fate = group_worth(group, settings)
        if learning is not None and settings.policy_of(group.key.agent) not in learning:
            fate = "frozen"
        elif source_round is None:
            fate = "foreign"
        elif number - 1 - source_round > limit:
            fate = "stale"
        record = GroupRecord(
            id=group.id,
            key=str(group.key),
            policy=policy,
            version=group.policy.version,
            rewards=group.rewards,
            origins=tuple(member.origin for member in group.members),
            fate=fate,
        )
        version = group.policy.version if source_round is None else first + source_round
        own_policy = group.policy.model_copy(update={"version": version})
        group_records.append((replace(group, policy=own_policy), record))
    return RoundGroups(tuple(group_records), reading.skipped)


def _skip_text(entry: Skipped) -> str:
    detail = " ".join(entry.detail.split())
    short = detail if len(detail) <= _SHOWN else f"{detail[:_SHOWN]}…"
    return f"{entry.where}: {short}" if short else entry.where
