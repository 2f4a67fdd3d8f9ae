"""Batches as a pure function of the groups and the settings: resuming needs no state but the
number of steps done, and the loop that trains while it rolls out has the batches of its replay.

A recorded store is a log of versions. At version v those groups are taken that v or an earlier
version sampled and that are not too old, oldest versions first, those of one version in an order
that the seed decides. After each batch the policies have another version. A group whose rewards
are all the same is passed over, counted, and takes no place in a batch.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from trainers.grpo.advantages import has_signal
from trainers.grpo.groups import Group
from trainers.grpo.settings import GrpoSettings
from trainers.grpo.staleness import too_old


@dataclass(frozen=True)
class StepBatch:
    """What one step learns from."""

    version: int
    """Of the weights that learn from it."""
    groups: tuple[Group, ...]
    flat: tuple[Group, ...]
    """Passed over on the way: all rewards the same."""
    stale: int
    """Groups that were too old when the batch was made."""


class Batches(NamedTuple):
    """Of all steps."""

    steps: tuple[StepBatch, ...]
    stale: int
    """Groups that were found too old after the last of them."""


def batches_of(groups: Sequence[Group], settings: GrpoSettings) -> Batches:
    """The batches until the groups or the steps are used up."""
    made, steps = step_batches(groups, settings), list[StepBatch]()
    while True:
        try:
            steps.append(next(made))
        except StopIteration as end:
            return Batches(tuple(steps), end.value)


def step_batches(
    groups: Sequence[Group], settings: GrpoSettings
) -> Generator[StepBatch, None, int]:
    """One after the other, and in the end `Batches.stale`."""
    version, done = settings.base_version, 0
    stale, flat = 0, list[Group]()
    for epoch in range(settings.epochs):
        waiting = deque(ordered(groups, settings.seed, epoch))
        while waiting:
            while waiting and too_old(waiting[0], version, settings.staleness):
                waiting.popleft()
                stale += 1
            taken = _taken(waiting, version, settings.batch)
            flat += [group for group in taken if not has_signal(group.rewards)]
            learned = tuple(group for group in taken if has_signal(group.rewards))
            if learned:
                yield StepBatch(version, learned, tuple(flat), stale)
                stale, flat = 0, []
                done += 1
                version += 1
                if done == settings.steps:
                    return 0
            elif waiting:
                # Somebody else has trained in between: the log goes on with a later version.
                version = max(version, waiting[0].policy.version)
    return stale


def ordered(groups: Sequence[Group], seed: int, epoch: int) -> list[Group]:
    """Oldest versions first, those of one version in the order that the seed decides."""
    ordered: list[Group] = []
    by_version = sorted(groups, key=lambda group: group.policy.version)
    for version, same in groupby(by_version, key=lambda group: group.policy.version):
        # By their ids first: the order in which they were read does not matter.
        shuffled = sorted(same, key=lambda group: group.id)
        random.Random(f"{seed}:{epoch}:{version}").shuffle(shuffled)
        ordered += shuffled
    return ordered


def _taken(waiting: deque[Group], version: int, count: int) -> list[Group]:
    """From the front, of this version and earlier ones, until `count` have a signal."""
    taken: list[Group] = []
    while count and waiting and waiting[0].policy.version <= version:
        taken.append(waiting.popleft())
        count -= has_signal(taken[-1].rewards)
    return taken
