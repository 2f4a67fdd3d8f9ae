"""Messages of other versions: a worker that can read them does, and only after a set time are they
given up."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict

from loopline.bus import Bus, Delivery, Envelope, Registry, Retry, UnknownPayload, dead_letters
from loopline.bus.settings import BusSettings
from tests.bus.other_versions import Line, admit_strange, third_version
from tests.bus.payloads import Note, admit, note
from tests.bus.serving import ended, finishing, letters, serving, until


async def test_an_older_payload_is_upgraded_version_by_version(bus: Bus) -> None:
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


async def test_a_message_of_a_later_version_waits_for_a_worker_that_can_read_it(bus: Bus) -> None:
    """Deliveries that other workers handed back are not attempts."""
    attempts: list[int] = []

    async def handler(delivery: Delivery) -> None:
        attempts.append(delivery.envelope.attempt)
        await finishing(delivery)

    async with serving(bus, ["planner"], finishing):
        run_id = await admit_strange(bus, type_version=3, payload={"words": ["later"]})
        await until(lambda: _handed_back(bus, run_id), "handed back")
        async with (
            Bus(bus.settings, third_version()) as newer,
            serving(newer, ["planner"], handler),
        ):
            await ended(newer, run_id)
    assert (await bus.run_state(run_id)).outcome == "answered"
    assert attempts == [0]
    assert await letters(bus) == []


async def _handed_back(bus: Bus, run_id: str) -> bool:
    key = bus.keys.shard_of(run_id).run(run_id)
    failure: bytes | None = await bus.redis.hget(key, "failure")  # pyright: ignore
    return failure is not None and b"this process knows only 1" in failure


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"type": "riddle"}, "unknown payload type 'riddle'; known here: note"),
        (
            {"type_version": 3},
            "'note' has version 3, but this process knows only 1: upgrade this worker",
        ),
    ],
)
async def test_an_unreadable_message_becomes_a_dead_letter_after_a_set_time(
    settings: BusSettings, changes: dict[str, Any], says: str
) -> None:
    """The letter names the versions; a later worker may take it, and waits equally long for it."""
    impatient = settings.model_copy(update={"version_seconds": 0.3})
    registry = Registry()
    registry.register("note", Note)
    async with Bus(impatient, registry) as bus, serving(bus, ["planner"], finishing):
        run_id = await admit_strange(bus, **changes)
        await ended(bus, run_id)
        state = await bus.run_state(run_id)
        assert state.outcome == "error"
        assert "no worker with a suitable version took it within 0.3 s" in state.reason
        assert says in state.reason
        [letter] = await letters(bus)
        await dead_letters.replay(bus, letter.id)
        shard = bus.keys.shard_of(run_id)
        await until(lambda: _is_delayed(bus, shard.delayed("planner")), "handed back again")


async def _is_delayed(bus: Bus, key: str) -> bool:
    bodies: list[bytes] = await bus.redis.zrange(key, 0, -1)
    return any(Envelope.from_json(body).handed_back > 0 for body in bodies)


class OpenNote(BaseModel):
    """A note that keeps unknown fields."""

    model_config = ConfigDict(extra="allow")

    text: str = ""


def test_an_earlier_version_reads_a_later_one_that_allows_it_with_all_fields() -> None:
    registry = Registry()
    registry.register("note", OpenNote)
    changes = {"type_version": 2, "readable_from": 1, "payload": {"text": "x", "new": [1]}}
    payload = registry.decode(note("r").model_copy(update=changes))
    assert isinstance(payload, OpenNote)
    assert payload.text == "x"
    assert payload.model_extra == {"new": [1], "type_version": 2, "readable_from": 1}


def test_an_earlier_version_that_only_lacks_optional_fields_needs_no_upcaster() -> None:
    registry = Registry()
    registry.register("note", Note, version=3, readable_from=1)
    assert registry.decode(note("r", "old")) == Note(text="old")


def test_a_version_without_an_upcaster_is_refused() -> None:
    registry = Registry()
    registry.register("note", Line, version=3)
    registry.upcast("note", 2, lambda old: old)
    with pytest.raises(UnknownPayload, match="no upgrade from version 1 to 3 of 'note'"):
        registry.decode(note("r", "old"))


async def test_an_unknown_message_field_survives_a_retry(bus: Bus) -> None:
    surprises: list[object] = []

    async def handler(delivery: Delivery) -> None:
        surprises.append((delivery.envelope.model_extra or {}).get("surprise"))
        if len(surprises) == 1:
            raise Retry("once more", delay=0.0)
        await finishing(delivery)

    async with serving(bus, ["planner"], handler):
        run_id = await admit_strange(bus, surprise=7)
        await ended(bus, run_id)
    assert surprises == [7, 7]
