"""Adapters of rounds long gone are given up: on the bus first, then on disk.

A version that the bus lists may be chosen at any time, and anyone who starts or wakes reads its
folder then. So a folder goes only when no policy of the bus has a version in it any more. A kill
between the two leaves folders that the next round gives up.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection
from pathlib import Path

from loopline.bus import Bus, Policy, policies
from loopline.trainers.grpo.loop.run_directory import RunDirectory


async def prune_old_versions(
    bus: Bus,
    book: RunDirectory,
    number: int,
    policy_names: Collection[str],
    keep: int,
    best: int | None = None,
) -> None:
    """Keep, of the policies `policy_names`, the results of the newest `keep` rounds up to `number`,
    and of the round `best`. What is in use, what a rollback would return to, and what somebody has
    published again stays too."""
    old = [
        folder.resolve()
        for at, folder in book.published_rounds()
        if at <= number - keep and at != best
    ]
    if not old:
        return

    def forgotten(policy: Policy) -> Policy:
        gone = [
            policy_version.version
            for policy_version in policy.versions
            if _is_within(policy_version.path, old)
        ]
        return policy.without_versions(gone)

    for policy in await policies.policies(bus):
        if policy.name in policy_names and forgotten(policy) != policy:
            await policies.change(bus, policy.name, forgotten)
    stored_policies = await policies.load_policies(bus)
    if stored_policies.unreadable:
        return  # what one of those names is not known, and what it names is still wanted
    listed = [
        policy_version.path
        for policy in stored_policies.policies
        for policy_version in policy.versions
    ]
    for folder in old:
        if not any(_is_within(path, [folder]) for path in listed):
            shutil.rmtree(folder, ignore_errors=True)


def _is_within(path: str, folders: Collection[Path]) -> bool:
    return any(Path(path).is_relative_to(folder) for folder in folders)
