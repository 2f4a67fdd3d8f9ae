"""Removes adapters of rounds long past: on the bus first, then on disk.

A version that the bus lists may be chosen at any time, and a worker that starts or wakes then reads
its folder. So a folder is removed only when no policy of the bus lists a version in it any more. A
kill between the two steps leaves folders that the next round removes.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection
from pathlib import Path

from loopline.bus import Bus, Policy, policies
from loopline.trainers.grpo.loop.run_directory import RunDirectory


async def prune_old_versions(
    bus: Bus,
    directory: RunDirectory,
    number: int,
    policy_names: Collection[str],
    keep: int,
    best: int | None = None,
) -> None:
    """Keep the results of the newest `keep` rounds up to `number`, and of the round `best`, for the
    policies `policy_names`. Versions that are in use, that a rollback would return to, or that
    somebody has published again stay too."""
    old = [
        folder.resolve()
        for at, folder in directory.published_rounds()
        if at <= number - keep and at != best
    ]
    if not old:
        return

    def without_old_versions(policy: Policy) -> Policy:
        gone = [
            policy_version.version
            for policy_version in policy.versions
            if _is_within(policy_version.path, old)
        ]
        return policy.without_versions(gone)

    for policy in await policies.policies(bus):
        if policy.name in policy_names and without_old_versions(policy) != policy:
            await policies.change(bus, policy.name, without_old_versions)
    stored_policies = await policies.load_policies(bus)
    if stored_policies.unreadable:
        return  # an unreadable policy may still use a folder
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
