"""Batches as a pure function of the groups and the settings: resuming needs only the number of
finished steps, and a loop that trains while it rolls out makes the same batches as its replay.

A recorded store is a log of versions. Version v takes the groups that v or an earlier version
sampled and that are not too old, oldest versions first; groups of one version come in an order that
the seed determines. Each batch makes a new version of the policies. A group without a signal is
skipped and counted, and takes no place in a batch.

Samples of a worker that loaded a version late are older than their round. If the runs record their
round, these samples are taken with that round, and are too old there if they were too old in the
loop.
"""

from __future__ import annotations

import random
from collections import defaultdict, deque
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import NamedTuple

from loopline.trainers.grpo.groups import Group
from loopline.trainers.grpo.learnable import group_worth, is_too_old
from loopline.trainers.grpo.settings import GrpoSettings


@dataclass(frozen=True)
class StepBatch:
    """Groups that one step learns from."""

    version: int
    """Version of the weights that learn from it."""
    groups: tuple[Group, ...]
    zero_variance: tuple[Group, ...]
    """Groups that were skipped since all rewards are equal."""
    stale: int
    """Groups that were too old when the batch was made."""
    truncated: int = 0
    """Groups that were skipped since all completions reached their token limit."""


class Batches(NamedTuple):
    """Batches of all steps."""

    steps: tuple[StepBatch, ...]
    stale: int
    """Groups that turned out to be too old after the last batch."""


def batches_of(groups: Sequence[Group], settings: GrpoSettings) -> Batches:
    """The batches until the groups or the steps are used up."""
    batch_iterator, steps = step_batches(groups, settings), list[StepBatch]()
    while True:
        try:
            steps.append(next(batch_iterator))
        except StopIteration as end:
            return Batches(tuple(steps), end.value)


def step_batches(
    groups: Sequence[Group], settings: GrpoSettings
) -> Generator[StepBatch, None, int]:
    """Yield one batch after the other; returns `Batches.stale`."""
    version, step_count, skipped = settings.base_version, 0, _SkippedGroups()
    groups_by_due = _by_due(groups)
    for epoch in range(settings.epochs):
        waiting = deque(
            (due, group)
            for due, same in groups_by_due
            for group in order_groups(same, settings.seed, epoch)
        )
        while waiting:
            learned = _take_batch(waiting, version, settings, skipped)
            if learned:
                zero_variance, stale, truncated = (
                    tuple(skipped.zero_variance),
                    skipped.stale,
                    skipped.truncated,
                )
                yield StepBatch(version, tuple(learned), zero_variance, stale, truncated)
                skipped = _SkippedGroups()
                step_count += 1
                version += 1
                if step_count == settings.steps:
                    return 0
            elif waiting:
                # Another training ran in between: the log continues with a later version.
                version = max(version, waiting[0][0])
    return skipped.stale


def order_groups(groups: Sequence[Group], seed: int, epoch: int) -> list[Group]:
    """Oldest versions first; groups of one version come in an order that the seed determines."""
    order_groups: list[Group] = []
    by_version = sorted(groups, key=lambda group: group.policy.version)
    for version, same in groupby(by_version, key=lambda group: group.policy.version):
        # Sorted by id first, so that the order in which they were read does not matter.
        shuffled = sorted(same, key=lambda group: group.id)
        random.Random(f"{seed}:{epoch}:{version}").shuffle(shuffled)
        order_groups += shuffled
    return order_groups


@dataclass
class _SkippedGroups:
    """The groups that were skipped since the last batch."""

    zero_variance: list[Group] = field(default_factory=list[Group])
    stale: int = 0
    truncated: int = 0


def _take_batch(
    waiting: deque[tuple[int, Group]], version: int, settings: GrpoSettings, skipped: _SkippedGroups
) -> list[Group]:
    """Take groups that are due at this version or earlier from the front, until the batch is
    full."""
    learned: list[Group] = []
    while len(learned) < settings.batch and waiting and waiting[0][0] <= version:
        _, group = waiting.popleft()
        if is_too_old(group, version, settings.staleness):
            skipped.stale += 1
            continue
        match group_worth(group, settings):
            case "trained":
                learned.append(group)
            case "zero_variance":
                skipped.zero_variance.append(group)
            case "truncated":
                skipped.truncated += 1
    return learned


def _by_due(groups: Sequence[Group]) -> list[tuple[int, list[Group]]]:
    """Groups by the version that is to learn from them, earliest first. This is the version that
    sampled them or, in a loop's round, the newest that sampled any group of the round. If that is
    also the version of the round before, the whole round was sampled late and is due one version
    later: each round makes a version."""
    # By loop and policy: a deployment counts the versions of each policy separately.
    newest: defaultdict[tuple[str, str], dict[int, int]] = defaultdict(dict)
    for group in groups:
        if group.round is not None:
            rounds, number = newest[group.round.loop, _name(group)], group.round.number
            rounds[number] = max(group.policy.version, rounds.get(number, 0))
    for rounds in newest.values():
        before = None
        for number in sorted(rounds):
            if before is not None:
                rounds[number] = max(rounds[number], rounds[before] + number - before)
            before = number
    groups_by_due: defaultdict[int, list[Group]] = defaultdict(list)
    for group in groups:
        due = group.policy.version
        if group.round is not None:
            due = newest[group.round.loop, _name(group)][group.round.number]
        groups_by_due[due].append(group)
    return sorted(groups_by_due.items())


def _name(group: Group) -> str:
    return group.policy.adapter or group.policy.name
