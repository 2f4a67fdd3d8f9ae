"""What arrives is checked: whatever is not a message of ours is set aside whole, with the
reason."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from pydantic import BaseModel, model_validator

from loopline.bus import Bus, Delivery, Outgoing, Registry, UnknownPayload, dead_letters
from loopline.bus.bus import Admission
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
    "a field too many": (wire(surprise=1), "surprise: Extra inputs"),
    "a wrong type": (wire(turn="first"), "turn: Input should be a valid integer"),
    "a negative turn": (wire(turn=-1), "turn: Input should be greater than or equal to 0"),
    "a long id": (wire(run_id="r" * 65), "run_id: String should have at most 64"),
    "an unknown type": (wire(type="riddle"), "unknown payload type 'riddle'; known here: note"),
    "a later version": (wire(type_version=2), "has version 2, this process knows 1: upgrade"),
    "a bad payload": (wire(payload={"text": 7}), "payload of 'note': text: Input should be"),
    "ten megabytes": (wire(payload={"text": "x" * 10_000_000}), "max_message_bytes"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
async def test_a_bad_message_is_buried_whole_and_the_next_one_is_served(
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


async def test_an_entry_without_our_field_is_buried(bus: Bus) -> None:
    await bus.redis.xadd(bus.keys.shard(0).work("planner"), {"other": "field"})
    async with serving(bus, ["planner"], finishing):
        await until(lambda: _one_letter(bus), "the letter")
    [letter] = await letters(bus)
    assert letter.envelope == b""


async def _one_letter(bus: Bus) -> bool:
    return len(await letters(bus)) == 1


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"type": "riddle"}, "unknown payload type 'riddle'; known here: note"),
        ({"type_version": 3}, "'note' has version 3, this process knows 1: upgrade this worker"),
    ],
)
async def test_a_run_ends_when_its_message_can_not_be_read_by_this_version(
    bus: Bus, changes: dict[str, Any], says: str
) -> None:
    """An unknown payload in a good envelope still says whose it is."""
    async with serving(bus, ["planner"], finishing):
        run_id = await admit_strange(bus, **changes)
        await ended(bus, run_id)
    state = await bus.run_state(run_id)
    assert state.outcome == "error"
    assert says in state.reason


async def admit_strange(bus: Bus, **changes: Any) -> str:
    """Let in a run whose first message is of another version of this software; its id."""
    run_id = new_run_id()
    strange = note(run_id).model_copy(update=changes)
    await bus.admit(Admission(run_id, b"{}", time.time() + 60, (Outgoing("planner", strange),)))
    return run_id


class Line(BaseModel):
    """The third version of a note."""

    words: list[str]

    @model_validator(mode="after")
    def _not_cursed(self) -> Line:
        if "cursed" in self.words:
            raise RuntimeError("a validator that raises what it should not")
        return self


def third_version() -> Registry:
    registry = Registry()
    registry.register("note", Line, version=3)
    registry.upcast("note", 1, lambda old: {"sentence": old["text"]})
    registry.upcast("note", 2, lambda old: {"words": old["sentence"].split()})
    return registry


async def test_an_older_payload_is_lifted_version_by_version(bus: Bus) -> None:
    payloads: list[BaseModel] = []

    async def handler(delivery: Delivery) -> None:
        payloads.append(delivery.payload)
        await finishing(delivery)

    async with (
        Bus(bus.settings, third_version()) as newer,
        serving(newer, ["planner"], handler),
    ):
        run_id = await admit(bus, text="to be lifted")
        await ended(bus, run_id)
    assert payloads == [Line(words=["to", "be", "lifted"])]


async def test_a_message_of_a_later_version_goes_on_once_the_worker_is_upgraded(bus: Bus) -> None:
    async with serving(bus, ["planner"], finishing):
        run_id = await admit_strange(bus, type_version=3, payload={"words": ["later"]})
        await ended(bus, run_id)
    [letter] = await letters(bus)
    async with (
        Bus(bus.settings, third_version()) as newer,
        serving(newer, ["planner"], finishing),
    ):
        await dead_letters.replay(newer, letter.id)
        await ended(newer, run_id)
    assert (await bus.run_state(run_id)).outcome == "answered"


@pytest.mark.parametrize("payload", [{}, {"text": 7}, {"text": "cursed"}])
async def test_an_upcaster_or_a_validator_that_raises_buries_the_message(
    bus: Bus, payload: dict[str, Any]
) -> None:
    """It would raise at every delivery, and the count of attempts is looked at after decoding."""
    run_id = await admit(bus, "elsewhere")
    body = note(run_id).model_copy(update={"payload": payload}).to_json()
    async with Bus(bus.settings, third_version()) as newer:
        await bus.redis.xadd(bus.keys.shard_of(run_id).work("planner"), {"e": body})
        async with serving(newer, ["planner"], finishing):
            await ended(bus, run_id)
    [letter] = await letters(bus)
    assert "Traceback" in letter.traceback
    assert (await bus.run_state(run_id)).outcome == "error"


def test_a_version_without_a_way_up_is_refused() -> None:
    registry = Registry()
    registry.register("note", Line, version=3)
    registry.upcast("note", 2, lambda old: old)
    with pytest.raises(UnknownPayload, match="no way from version 1 to 3 of 'note'"):
        registry.decode(note("r", "old"))


def test_a_type_is_registered_once() -> None:
    registry = Registry()
    registry.register("note", Note)
    registry.register("note", Note)
    with pytest.raises(ValueError, match="already registered"):
        registry.register("note", Line)
    assert isinstance(registry.decode(note("r", "as before")), Note)
