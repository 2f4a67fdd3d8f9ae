"""Waiting for the workers after a change of a policy, on a real bus."""

from __future__ import annotations

import asyncio

import pytest

from loopline.bus import Bus, Policy, WorkerPresence, policies
from loopline.bus.canaries import Canary
from loopline.bus.presence import beat
from loopline.runtime.client.policy_changes import PolicyChange, change

NAME = "slm/new"
LONG = 60.0
"""Seconds; more than any of these tests may take."""
CANARY = Canary(version=1, against=0, share=0.1, since=1.0)


async def announce_silent_worker(bus: Bus) -> None:
    """Announce a worker that serves the pool and never reports on a policy."""
    details = {"models": {"slm": {}}}
    await beat(bus, WorkerPresence(name="gpu-1", kind="gpu", state="ready", details=details))


async def state_in_service(bus: Bus) -> Policy:
    """The policy, as soon as a version of it is in use or on trial."""
    async for states in policies.follow(bus):
        for policy in states:
            if policy.current or policy.canary:
                return policy
    raise AssertionError("`follow` never ends")


async def replaced_while_waiting(bus: Bus) -> PolicyChange:
    """Start a canary, wait for the workers, and let a recorder roll the canary back meanwhile."""
    await policies.change(bus, NAME, lambda policy: policy.added("/weights", 1.0))
    waiting = asyncio.create_task(
        change(bus, NAME, lambda policy: policy.with_canary(CANARY), LONG)
    )
    canary = (await state_in_service(bus)).canary
    await policies.change(
        bus,
        NAME,
        lambda policy: policy.without_canary(canary),
        by="recorder-1",
        evidence={"reason": "a worker refuses it: gpu-1: no weights"},
    )
    return await asyncio.wait_for(waiting, LONG / 2)


@pytest.mark.parametrize("worker", [True, False], ids=["a silent worker", "no worker"])
async def test_a_canary_that_is_rolled_back_during_the_wait_is_reported_with_the_reason(
    bus: Bus, worker: bool
) -> None:
    if worker:
        await announce_silent_worker(bus)
    changed = await replaced_while_waiting(bus)
    assert changed.replaced is not None
    assert (changed.replaced.action, changed.replaced.by) == ("canary rolled back", "recorder-1")
    assert "gpu-1: no weights" in str(changed.replaced.evidence["reason"])
    assert changed.states == ({"gpu-1": "not yet"} if worker else {})


async def test_a_version_that_is_only_added_during_the_wait_replaces_nothing(bus: Bus) -> None:
    await announce_silent_worker(bus)
    waiting = asyncio.create_task(
        change(bus, NAME, lambda policy: policy.published("/first", 1.0), 1.0)
    )
    await state_in_service(bus)
    await policies.change(bus, NAME, lambda policy: policy.added("/second", 1.0))
    changed = await waiting
    assert changed.replaced is None
    assert changed.states == {"gpu-1": "not yet"}
