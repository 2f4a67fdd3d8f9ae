"""Lets the deployment answer with the policies of a round: each is published once, however often
the training is killed and resumed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from loopline.bus import Bus, Policy, PolicyError, retry_during_outage
from loopline.runtime.client import policy_changes
from loopline.trainers.core.publishing import Publication
from loopline.trainers.errors import TrainingError
from loopline.trainers.grpo.loop.run_directory import RunDirectory

PUBLISH_SECONDS = 60.0
"""Longest absence of the bus while a change of its policies is in progress."""


async def serve(
    bus: Bus,
    directory: RunDirectory,
    number: int,
    publications: Sequence[Publication],
    before: Sequence[Publication],
    wait: float,
    say: Callable[[str], None],
) -> dict[str, int]:
    """Publish the result of round `number`, unless it was published before; returns the version
    numbers.

    `before` are the versions that the deployment is expected to serve until then. Workers that do
    not reply within `wait` seconds are reported and not waited for: their answers with an older
    version are not learned from. Weights that a worker refused before this call are published once
    more: the worker may have been fixed since, and a worker tries a version only once. Raises
    `TrainingError` if a worker refuses, or if somebody else has chosen another version for a
    policy.
    """
    earlier = {publication.policy: str(publication.folder.resolve()) for publication in before}
    versions: dict[str, int] = {}
    for publication in publications:
        path, began = str(publication.folder.resolve()), bus.clock.now()
        changed = await _change_policy(
            bus, publication.policy, _publish_once(path, earlier.get(publication.policy)), wait
        )
        published = changed.policy.published_at(changed.policy.current)
        if changed.refusals and published is not None and published < began:
            changed = await _change_policy(bus, publication.policy, _republish(path), wait)
        versions[publication.policy] = changed.policy.current
        if changed.refusals:
            if number:
                # Runs that were started ahead may contain answers of workers that did not refuse
                # it.
                directory.note_served(number, versions)
            raise TrainingError(
                f"loop: {publication.policy} {changed.refusals[0]}. Fix that, then resume with "
                "the same command"
            )
        late = [worker for worker, words in changed.states.items() if words == "not yet"]
        if late or not changed.states:
            who = ", ".join(late) or f"no worker of the pool {changed.policy.pool}"
            say(f"{publication.policy} version {changed.policy.current}: not loaded yet by {who}")
    directory.note_served(number, versions)
    return versions


async def serve_chosen(
    bus: Bus, publications: Sequence[Publication], wait: float
) -> dict[str, int]:
    """Let the deployment answer with versions that were published before; returns their numbers.
    Raises `TrainingError`."""
    versions: dict[str, int] = {}
    for publication in publications:
        path = str(publication.folder.resolve())
        changed = await _change_policy(bus, publication.policy, _choose(path), wait)
        versions[publication.policy] = changed.policy.current
        if changed.refusals:
            raise TrainingError(f"loop: {publication.policy} {changed.refusals[0]}")
    return versions


def _choose(path: str) -> Callable[[Policy], Policy]:
    """A change that puts the newest version of these weights in use, or publishes them if the bus
    lists no version."""

    def to(policy: Policy) -> Policy:
        numbers = [entry.version for entry in policy.versions if entry.path == path]
        if policy.path_of(policy.current) == path:
            return policy
        if numbers:
            return policy.with_version_in_use(max(numbers))
        return policy.published(path, time.time())

    return to


async def _change_policy(
    bus: Bus, policy: str, to: Callable[[Policy], Policy], wait: float
) -> policy_changes.PolicyChange:
    """Change a policy and wait for its workers. Raises `TrainingError`."""
    try:
        return await retry_during_outage(
            "publish",
            lambda: policy_changes.change(bus, policy, to, wait),
            give_up_after=max(wait, PUBLISH_SECONDS),
            where=bus.settings.safe_url,
        )
    except PolicyError as error:
        raise TrainingError(f"loop: {error}") from error


def _republish(path: str) -> Callable[[Policy], Policy]:
    """A change that publishes the adapter at `path`, which is in use, under another number."""

    def to(policy: Policy) -> Policy:
        in_use = policy.path_of(policy.current) == path
        return policy.published(path, time.time()) if in_use else policy

    return to


def _publish_once(path: str, before: str | None) -> Callable[[Policy], Policy]:
    """A change that puts the adapter at `path` in use. It raises PolicyError if somebody else has
    chosen another version."""

    def to(policy: Policy) -> Policy:
        in_use = policy.path_of(policy.current)
        if in_use == path:
            return policy
        paths = {entry.path for entry in policy.versions}
        if path in paths or (before in paths and in_use != before):
            latest_version = max(
                entry.version for entry in policy.versions if entry.path in (path, before)
            )
            raise PolicyError(
                f"policy {policy.name!r}: another client has selected version {policy.current} "
                f"({in_use or 'the model itself'}) since this training published "
                f"{latest_version}. Run `runtime policies pin {policy.name} {latest_version}`, "
                "then resume with the same command"
            )
        return policy.published(path, time.time())

    return to
