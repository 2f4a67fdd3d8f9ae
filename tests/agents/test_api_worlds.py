"""Laws of the simulated APIs: deterministic, typed, and unchanged by a failed call."""

from __future__ import annotations

import dataclasses
import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loopline.agents.environments.api_worlds import APIS, DOMAINS, World
from loopline.agents.environments.api_worlds.api import REGISTERED, Name, State, api
from loopline.agents.environments.api_worlds.names import WEEKDAYS
from loopline.agents.environments.api_worlds.world import MAX_OBSERVATION_CHARS
from loopline.agents.records import JsonObject, ToolCall

seeds = st.integers(0, 2**31)
hostile = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(max_size=60),
        st.sampled_from(["x" * 100_000, "\ud800", "'; drop table flights", "é" * 40]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)


def names_in(table: object) -> list[str]:
    """Return every text in a state: the names that a call may sensibly use."""
    if isinstance(table, dict):
        return [name for pair in table.items() for part in pair for name in names_in(part)]
    if isinstance(table, list | tuple):
        return [name for part in table for name in names_in(part)]
    if dataclasses.is_dataclass(table) and not isinstance(table, type):
        return names_in(dataclasses.asdict(table))
    return [table] if isinstance(table, str) else []


def some_call(rng: random.Random, world: World, name: str | None = None) -> tuple[str, JsonObject]:
    """Draw a call that fits the schema, mostly about existing things."""
    name = name or rng.choice([*APIS])
    called = APIS[name]
    names = names_in(world.state(called.state)) + names_in(list(world.setting.people))
    arguments: JsonObject = {}
    properties: Any = called.spec.parameters["properties"]
    for parameter, schema in properties.items():
        if "default" in schema and rng.random() < 0.6:
            continue
        if "enum" in schema:
            arguments[parameter] = rng.choice(schema["enum"])
        elif schema["type"] == "integer":
            arguments[parameter] = rng.randint(1, 9)
        elif "pattern" in schema:
            arguments[parameter] = rng.choice(("09:00", "12:00", "19:00", "555-1234"))
        else:
            arguments[parameter] = rng.choice([*names, "é" * 40])[:40]
    return name, arguments


def whole(world: World) -> dict[str, str]:
    return world.snapshot(DOMAINS)


def test_there_are_sixty_apis_in_twelve_domains_and_more() -> None:
    assert len(DOMAINS) >= 12
    assert len(APIS) >= 60
    assert {called.domain for called in APIS.values()} == set(DOMAINS)


@given(seeds, seeds)
@settings(max_examples=25, deadline=None)
def test_a_call_that_fails_or_only_reads_changes_nothing(seed: int, calls: int) -> None:
    rng, world = random.Random(calls), World(seed)
    for _ in range(20):
        name, arguments = some_call(rng, world)
        before = whole(world)
        observation = world.call(name, arguments)
        if "error" in json.loads(observation) or not APIS[name].changes:
            assert whole(world) == before, (name, arguments, observation)


@given(seeds, seeds)
@settings(max_examples=40, deadline=None)
def test_the_same_seed_and_calls_give_the_same_observations(seed: int, calls: int) -> None:
    rng, first, again = random.Random(calls), World(seed), World(seed)
    invocations = [some_call(rng, first) for _ in range(30)]
    for name, arguments in invocations:
        observation = first.call(name, arguments)
        assert observation == again.call(name, arguments)
        assert len(observation) <= MAX_OBSERVATION_CHARS
        assert isinstance(json.loads(observation), dict)
    replayed = World.after(seed, [ToolCall(id="", name=n, arguments=a) for n, a in invocations])
    assert whole(replayed) == whole(first)


@given(seeds, st.sampled_from(sorted(APIS)), hostile, st.data())
@settings(max_examples=300, deadline=None)
def test_hostile_arguments_are_answered_with_an_error(
    seed: int, name: str, value: Any, data: st.DataObject
) -> None:
    world = World(seed)
    before = whole(world)
    parameters = APIS[name].parameters
    if parameters and data.draw(st.booleans()):
        value = {parameter: data.draw(hostile) for parameter in parameters}
    observation = world.call(name, value)
    assert len(observation) <= MAX_OBSERVATION_CHARS
    if "error" in json.loads(observation):
        assert whole(world) == before
    observation.encode()


def test_a_number_of_thousands_of_digits_is_refused() -> None:
    observation = World(1).call("book_flight", {"flight": "AB12", "seats": 10**5000})
    message = json.loads(observation)["error"]
    assert message.startswith("invalid arguments: seats: Input should be less than or equal to 20")
    assert len(message) < 120


def test_a_domain_does_not_depend_on_domains_used_before_it() -> None:
    forwards, backwards = World(5), World(5)
    for domain in DOMAINS.values():
        forwards.state(domain)
    for domain in reversed(DOMAINS.values()):
        backwards.state(domain)
    assert whole(forwards) == whole(backwards)
    assert whole(World(6)) != whole(forwards)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"flight": "AB12"}, "seats"),
        ({"flight": "AB12", "seats": "two"}, "seats"),
        ({"flight": "AB12", "seats": 2.0}, "seats"),
        ({"flight": "AB12", "seats": True}, "seats"),
        ({"flight": "AB12", "seats": 0}, "seats"),
        ({"flight": "AB12", "seats": 2, "meal": "fish"}, "meal"),
        ({"flight": None, "seats": 2}, "flight"),
        ({"flight": "A" * 41, "seats": 2}, "flight"),
        ([], "JSON object"),
        (None, "JSON object"),
    ],
)
def test_an_argument_that_does_not_fit_the_schema_is_reported_by_name(
    arguments: object, message: str
) -> None:
    error = json.loads(World(1).call("book_flight", arguments))["error"]
    assert message in error


def test_an_invalid_day_is_refused_with_the_valid_days() -> None:
    world = World(1)
    city = world.setting.cities[0]
    error = json.loads(world.call("get_forecast", {"city": city, "day": "Someday"}))["error"]
    assert "day" in error
    assert "Monday" in error


def test_pages_show_every_row_once() -> None:
    paged = [name for name, called in APIS.items() if "page" in called.parameters]
    assert len(paged) >= 12
    longest = 0
    for seed in range(8):
        world, rng = World(seed), random.Random(seed)
        for name in paged * 3:
            _, arguments = some_call(rng, world, name)
            arguments.pop("page", None)
            first = json.loads(world.call(name, arguments))
            if "error" in first:
                continue
            key = next(iter(first))
            rows, page, answer = list(first[key]), 1, first
            while "next_page" in answer:
                assert answer["next_page"] == page + 1
                page += 1
                answer = json.loads(world.call(name, {**arguments, "page": page}))
                rows += answer[key]
            assert json.loads(world.call(name, {**arguments, "page": page + 1})) == {
                "error": f"there is no page {page + 1}"
            }
            assert len({json.dumps(row) for row in rows}) == len(rows)
            longest = max(longest, page)
    assert longest >= 3


def test_a_booking_takes_seats_and_a_cancellation_returns_them() -> None:
    for seed in range(50):
        world = World(seed)
        bookings = json.loads(world.call("list_flight_bookings", {}))["bookings"]
        flight = bookings[0]["flight"]
        before, seats = whole(world), json.loads(world.call("get_flight", {"flight": flight}))
        if not seats["seats"]:
            assert "sold out" in world.call("book_flight", {"flight": flight, "seats": 1})
            continue
        booked = json.loads(world.call("book_flight", {"flight": flight, "seats": 1}))
        after = json.loads(world.call("get_flight", {"flight": flight}))
        assert after["seats"] == seats["seats"] - 1
        assert booked["total"] == seats["price"]
        assert whole(world) != before
        world.call("cancel_flight", {"booking": booked["booking"]})
        assert whole(world) == before


def test_missing_money_cannot_be_sent() -> None:
    world = World(3)
    row = json.loads(world.call("list_accounts", {}))["accounts"][0]
    account, balance = row["account"], row["balance"]
    person = world.setting.people[0]
    wanted = {"account": account, "to": person, "amount": balance + 1}
    assert "insufficient funds" in world.call("transfer_money", wanted)
    assert json.loads(world.call("transfer_money", {**wanted, "amount": balance})) == {"balance": 0}


def test_two_events_cannot_overlap() -> None:
    world = World(3)
    free = {day: json.loads(world.call("free_hours", {"day": day}))["free"] for day in WEEKDAYS}
    day = next(day for day in WEEKDAYS if free[day])
    event = {"title": "Nap", "day": day, "time": free[day][0]}
    assert json.loads(world.call("add_event", event)) == {"added": "Nap"}
    assert "conflict with Nap" in world.call("add_event", {**event, "title": "Walk"})


def test_a_tool_that_is_not_offered_cannot_be_called() -> None:
    world = World(3, ["get_balance"])
    assert json.loads(world.call("list_bills", {})) == {"error": "unknown tool list_bills"}
    assert json.loads(world.call("no_such_tool", {})) == {"error": "unknown tool no_such_tool"}
    assert not world.used_domains


def test_an_api_must_take_a_state_and_have_a_unique_name() -> None:
    def stateless(text: Name) -> JsonObject:
        return {"text": text}

    def get_balance(bank: State) -> JsonObject:
        return {"state": bank.domain}

    with pytest.raises(TypeError, match="stateless must take the state"):
        api("Something")(stateless)
    with pytest.raises(TypeError, match="two APIs get_balance"):
        api("Something")(get_balance)
    assert set(REGISTERED) == set(APIS)
