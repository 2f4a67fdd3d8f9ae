"""Changes a policy, and collects the answers of the workers that serve it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import typer

from loopline.bus import Bus, Policy, WorkerPresence, live_workers, policies, pool_of
from loopline.bus.canaries import Canary
from loopline.bus.policies import load_policy
from loopline.bus.policy_log import LogEntry, read_log
from loopline.runtime.client.deployment import find
from loopline.runtime.errors import EXIT_FAILED, InputError
from loopline.runtime.on_bus import query_bus
from loopline.workers.canaries import in_words

LOOK_SECONDS = 0.2


@dataclass(frozen=True)
class PolicyChange:
    """A policy after a change."""

    policy: Policy
    states: Mapping[str, str]
    """Each worker's report on the version in use; `not yet` for a worker that did not report in
    time."""
    refusals: tuple[str, ...]
    """Reports of the workers that can't load the version."""
    replaced: LogEntry | None = None
    """The newest change of the policy, if another version or canary took this one's place before
    every worker had acted on it: by hand, or because a recorder rolled a canary back."""

    @property
    def path(self) -> str | None:
        """Path of the version in use; None for the model itself."""
        return self.policy.path_of(self.policy.current)


async def change(
    bus: Bus, name: str, to: Callable[[Policy], Policy], wait: float, *, by: str = ""
) -> PolicyChange:
    """Replace a policy with `to(policy)`, and wait at most `wait` seconds until every worker that
    serves its pool has acted on the change, or somebody has replaced it. `by`: see
    `policies.change`. Raises `PolicyError` and what `to` raises.
    """
    policy = await policies.change(bus, name, to, by=by)
    states: dict[str, str] = {}
    refusals: dict[str, str] = {}
    end = asyncio.get_running_loop().time() + wait
    while True:
        serving = [
            worker
            for worker in await live_workers(bus)
            if policy.pool in worker.details.get("models", {})
        ]
        for worker in serving:
            state = worker.details.get("policies", {}).get(name)
            if state is not None and _has_acted(state, policy):
                states[worker.name] = describe_state(state)
                if state["refused"] == policy.current or state.get("canary_refused"):
                    refusals[worker.name] = states[worker.name]
        done = bool(serving) and all(worker.name in states for worker in serving)
        # A recorder rolls a refused canary back at once. The worker's refusal, which is gone then,
        # may never be read here.
        replaced = None if done else await _replacement(bus, policy)
        if done or replaced or asyncio.get_running_loop().time() > end:
            waiting = {worker.name: "not yet" for worker in serving if worker.name not in states}
            return PolicyChange(policy, states | waiting, tuple(refusals.values()), replaced)
        await asyncio.sleep(LOOK_SECONDS)


async def _replacement(bus: Bus, policy: Policy) -> LogEntry | None:
    """The newest change of a policy that now answers with another version or canary."""
    latest = await load_policy(bus, policy.name)
    if latest is None or _versions_in_use(latest) == _versions_in_use(policy):
        return None
    entries = await read_log(bus, policy.name)
    return next((entry for entry in entries if entry.action not in ("add", "forget")), None)


def _versions_in_use(policy: Policy) -> tuple[object, ...]:
    """The version in use, the canary, and the times that they were published and started."""
    canary = policy.canary
    trial = (None, None) if canary is None else (canary.version, canary.since)
    return policy.current, policy.published_at(policy.current), *trial


def _has_acted(state: Mapping[str, object], policy: Policy) -> bool:
    """Whether a worker has reported on the version in use and on the one on trial."""
    keys = ("seen", "seen_published", "canary", "canary_since")
    return tuple(state.get(key) for key in keys) == _versions_in_use(policy)


def describe_state(state: Mapping[str, object]) -> str:
    """Describe a worker's report on a policy."""
    if state["refused"] is None:
        words = f"serves version {state['version']}"
    else:
        instead = "nothing" if state["version"] is None else state["version"]
        words = f"refuses version {state['refused']}, serves {instead}: {state['reason']}"
    if state.get("canary") is None:
        return words
    if state.get("canary_refused"):
        return f"{words}; refuses the canary {state['canary']}: {state['canary_refused']}"
    return f"{words}, and the canary {state['canary']}"


def describe_canary(canary: Canary) -> str:
    """Describe the effect of a canary in words."""
    what = "in the shadow of" if canary.mode == "shadow" else "answers"
    return f"{what} {canary.share:.4g} of the runs, margin {canary.margin:g}"


NOT_EVALUATED = "no recorder has evaluated it yet"


def comparisons_of(workers: Sequence[WorkerPresence]) -> dict[str, dict[str, Any]]:
    """Recorders' reports on canaries, by policy."""
    return {
        name: evidence
        for worker in workers
        for name, evidence in worker.details.get("canaries", {}).items()
    }


def routers_of(workers: Sequence[WorkerPresence]) -> dict[str, dict[str, Any]]:
    """Recorders' reports on routers, by router file."""
    return {
        name: facts
        for worker in workers
        for name, facts in worker.details.get("routers", {}).items()
    }


def describe_entry(entry: LogEntry) -> tuple[str, str, str, str, str]:
    """Return the time, policy, change, author and reason of an entry, each as text."""
    when = datetime.fromtimestamp(entry.at, UTC).strftime("%Y-%m-%d %H:%M:%S")
    what = f"{entry.action}: {entry.version}"
    if entry.before != entry.version:
        what += f" (previously {entry.before})"
    if entry.action == "canary":
        why = f"{entry.evidence.get('mode')} of {entry.evidence.get('share')}"
    else:
        why = in_words(entry.evidence)
    return when, entry.policy, what, entry.by, why


def change_and_report(
    name: str, redis_url: str | None, wait: float, to: Callable[[Policy], Policy]
) -> Policy:
    """Change a policy of the running deployment as `change` does, print the result, and return the
    new state.

    Raises `InputError` for a pool that does not exist, and `typer.Exit` with code 1 if a worker
    refused the new state, or somebody replaced it before every worker had acted on it.
    """
    pools = find(redis_url=redis_url).settings.models
    if pool_of(name) not in pools:
        raise InputError(f"there is no pool {pool_of(name)!r}", hint=f"pools: {', '.join(pools)}")
    changed = query_bus(redis_url, lambda bus: change(bus, name, to, wait))
    policy, canary = changed.policy, changed.policy.canary
    typer.echo(f"{name}: version {policy.current} ({changed.path or 'the model itself'})")
    if canary is not None:
        path = policy.path_of(canary.version) or "the model itself"
        typer.echo(f"  canary: version {canary.version} ({path}), {describe_canary(canary)}")
    for worker, words in changed.states.items():
        typer.echo(f"  {worker}: {words}")
    if not changed.states:
        typer.echo(f"  no worker serves the pool {policy.pool} now; one that starts will")
    if changed.replaced is not None:
        _, _, what, by, why = describe_entry(changed.replaced)
        typer.echo(f"  replaced: {what}, by {by}" + (f": {why}" if why else ""))
    if changed.refusals or changed.replaced is not None:
        raise typer.Exit(EXIT_FAILED)
    return policy
