"""The memory of a session: bounded in time, and able to keep any call that a model writes."""

from __future__ import annotations

import pytest

from loopline.agents.records import ToolCall
from loopline.bus import Bus
from loopline.bus.keys import MAX_RUN_SECONDS
from loopline.runtime.client.run_ids import new_run_id, time_of_run_id
from loopline.runtime.gateway import sessions
from loopline.runtime.gateway.sessions import Session, SessionMemory
from tests.runtime.gateway.responses.runs import call, trajectory_of, view_of

SESSION = Session("s", "caller")


def test_a_run_id_contains_its_creation_time() -> None:
    assert time_of_run_id(new_run_id(1_700_000_000.5)) == 1_700_000_000.5
    assert time_of_run_id("x") is None
    assert time_of_run_id("8d249876-38f1-462a-a941-eb10ad51d567") is None


async def test_calls_whose_runs_have_left_the_bus_are_forgotten(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "CALLS_PER_SWEEP", 1)
    key, now = bus.keys.session(SESSION.digest), bus.clock.now()
    gone = now - bus.settings.retention_seconds - MAX_RUN_SECONDS - 60
    for name, moment in (("old", gone), ("new", now - 60)):
        await bus.redis.hset(key, name, new_run_id(moment))  # pyright: ignore
    await SessionMemory(bus).note(SESSION, trajectory_of(view_of(), call("Hello.")))
    fields = await bus.redis.hkeys(key)  # pyright: ignore
    assert b"new" in fields
    assert b"old" not in fields


async def test_a_call_with_a_number_of_any_length_is_remembered(bus: Bus) -> None:
    large = ToolCall(id="t", name="now", arguments={"n": 10**25})
    await SessionMemory(bus).note(SESSION, trajectory_of(view_of(), call("", large)))
    assert await bus.redis.hlen(bus.keys.session(SESSION.digest)) == 1  # pyright: ignore
