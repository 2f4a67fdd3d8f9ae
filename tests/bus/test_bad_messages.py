"""Arriving messages are checked: anything that is not a valid message is set aside whole, with the
reason."""

from __future__ import annotations

import json
from typing import Any

import pytest

from loopline.bus import Bus, Registry
from tests.bus.other_versions import Line, third_version
from tests.bus.payloads import Note, admit, new_run_id, note
from tests.bus.serving import ended, finishing, letters, serving, until


def wire(**changes: Any) -> bytes:
    body: dict[str, Any] = json.loads(note(new_run_id()).to_json())
    return json.dumps(body | changes).encode()


BAD = {
    "empty": (b"", "MalformedEnvelope: not an envelope"),
    "no JSON": (b"{what", "not an envelope: the whole message: Invalid JSON"),
    "not UTF-8": (b'{"type": "\xff\xfe"}', "not an envelope"),
    "not an object": (b"[1, 2]", "not an envelope"),
    "a field missing": (b'{"type": "note", "run_id": "r"}', "deadline: Field required"),
    "a wrong type": (wire(turn="first"), "turn: Input should be a valid integer"),
    "a negative turn": (wire(turn=-1), "turn: Input should be greater than or equal to 0"),
    "a long id": (wire(run_id="r" * 65), "run_id: String should have at most 64"),
    "a bad payload": (wire(payload={"text": 7}), "payload of 'note': text: Input should be"),
    "ten megabytes": (wire(payload={"text": "x" * 10_000_000}), "max_message_bytes"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
async def test_a_bad_message_becomes_a_dead_letter_and_the_next_one_is_served(
    bus: Bus, name: str
) -> None:
    body, complaint = BAD[name]
    stream = bus.keys.shard(0).work("planner")
    await bus.redis.xadd(stream, {"e": body})
    async with serving(bus, ["planner"], finishing):
        run_id = await admit(bus)
        await ended(bus, run_id)
    [letter] = await letters(bus)
    assert complaint in letter.reason
    assert letter.envelope == body
    assert letter.stream == "planner"
    assert (await bus.run_state(run_id)).outcome == "answered"


async def test_an_entry_without_the_message_field_becomes_a_dead_letter(bus: Bus) -> None:
    await bus.redis.xadd(bus.keys.shard(0).work("planner"), {"other": "field"})
    async with serving(bus, ["planner"], finishing):
        await until(lambda: _one_letter(bus), "the letter")
    [letter] = await letters(bus)
    assert letter.envelope == b""


async def _one_letter(bus: Bus) -> bool:
    return len(await letters(bus)) == 1


@pytest.mark.parametrize("payload", [{}, {"text": 7}, {"text": "cursed"}])
async def test_a_message_whose_upcaster_or_validator_raises_becomes_a_dead_letter(
    bus: Bus, payload: dict[str, Any]
) -> None:
    """Such a message would raise at every delivery, and attempts are checked only after
    decoding."""
    run_id = await admit(bus, "elsewhere")
    body = note(run_id).model_copy(update={"payload": payload}).to_json()
    async with Bus(bus.settings, third_version()) as newer:
        await bus.redis.xadd(bus.keys.shard_of(run_id).work("planner"), {"e": body})
        async with serving(newer, ["planner"], finishing):
            await ended(bus, run_id)
    [letter] = await letters(bus)
    assert "Traceback" in letter.traceback
    assert (await bus.run_state(run_id)).outcome == "error"


def test_registering_a_type_twice_is_refused() -> None:
    registry = Registry()
    registry.register("note", Note)
    registry.register("note", Note)
    with pytest.raises(ValueError, match="already registered"):
        registry.register("note", Line)
    assert isinstance(registry.decode(note("r", "as before")), Note)
