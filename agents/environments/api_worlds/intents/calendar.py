"""Users' intents for their calendar."""

from __future__ import annotations

import random

from loopline.agents.environments.api_worlds.domains.calendar import HOURS, Calendar
from loopline.agents.environments.api_worlds.intent import (
    Answer,
    Program,
    Slots,
    Step,
    ToolError,
    Unsolvable,
    lookup,
    number_names,
    plan,
    pluralized_count,
)
from loopline.agents.environments.api_worlds.intents.drawing import a_day, choose_row, from_world
from loopline.agents.environments.api_worlds.names import EVENTS, WEEKDAYS
from loopline.agents.environments.api_worlds.world import World

an_event = from_world("title", lambda world: world.state(Calendar).events)
no_event = from_world(
    "title", lambda world: [name for name in EVENTS if name not in world.state(Calendar).events]
)
a_busy_day = from_world(
    "day", lambda world: sorted({event.day for event in world.state(Calendar).events.values()})
)


def a_free_hour(rng: random.Random, world: World) -> Slots | None:
    day, new = rng.choice(WEEKDAYS), no_event(rng, world)
    time = choose_row(rng, world.state(Calendar).free(day))
    return new and time and {**new, "day": day, "time": time}


def a_taken_hour(rng: random.Random, world: World) -> Slots | None:
    event, new = rng.choice([*world.state(Calendar).events.values()]), no_event(rng, world)
    return new and {**new, "day": event.day, "time": event.time}


def a_new_event_on_a_day(rng: random.Random, world: World) -> Slots | None:
    new = no_event(rng, world)
    return new and {**new, "day": rng.choice(WEEKDAYS)}


def a_move(rng: random.Random, world: World) -> Slots | None:
    calendar, day = world.state(Calendar), rng.choice(WEEKDAYS)
    time = choose_row(rng, calendar.free(day))
    return time and {"title": rng.choice([*calendar.events]), "day": day, "time": time}


def a_wish(rng: random.Random, world: World) -> Slots | None:
    new, hours = no_event(rng, world), rng.sample(HOURS, 2)
    calendar, day = world.state(Calendar), rng.choice(WEEKDAYS)
    if hours[1] not in calendar.free(day):
        return None
    return new and {**new, "day": day, "time": hours[0], "later": hours[1]}


def count_events(slots: Slots) -> Program:
    day = slots["day"]
    observation = yield Step(f"I need the events of {day}.", "list_events", {"day": day})
    yield number_names(row["title"] for row in observation["events"])
    count = len(observation["events"])
    count_phrase = pluralized_count(count, "event")
    return Answer(
        f"You have {count_phrase} on {day}.", (count,), f"I count {count_phrase} on {day}."
    )


def first_event(slots: Slots) -> Program:
    day = slots["day"]
    observation = yield Step(f"I need the events of {day}.", "list_events", {"day": day})
    if not observation["events"]:
        raise Unsolvable(f"There is no event on {day}.")
    first = observation["events"][0]
    return Answer(
        f"Your first event on {day} is {first['title']} at {first['time']}.", (first["title"],),
        f"{first['title']} at {first['time']} is the first.",
    )  # fmt: skip


def add_at_first_free(slots: Slots) -> Program:
    title, day = slots["title"], slots["day"]
    observation = yield Step(f"I need the free hours of {day}.", "free_hours", {"day": day})
    if not observation["free"]:
        raise Unsolvable(f"There is no free hour on {day}.")
    time = observation["free"][0]
    yield Step(
        f"The first free hour is {time}.", "add_event", {"title": title, "day": day, "time": time}
    )
    return Answer(f"I added {title} on {day} at {time}.", (time,))


def add_or_later(slots: Slots) -> Program:
    title, day, time, later = (slots[name] for name in ("title", "day", "time", "later"))
    try:
        yield Step(f"I try {time}.", "add_event", {"title": title, "day": day, "time": time})
    except ToolError:
        yield Step(
            f"{time} is taken, so I take {later}.",
            "add_event", {"title": title, "day": day, "time": later},
        )  # fmt: skip
        time, later = later, time
    return Answer(f"I added {title} on {day} at {time}.", (time,), wrong=(later,))


INTENTS = (
    lookup("calendar.when", draw=an_event, trouble=no_event),
    plan("calendar.count", count_events, draw=a_day),
    plan("calendar.first", first_event, draw=a_busy_day),
    lookup("calendar.add", draw=a_free_hour, trouble=a_taken_hour),
    plan("calendar.add_at_first_free", add_at_first_free, draw=a_new_event_on_a_day),
    plan("calendar.add_or_later", add_or_later, draw=a_wish),
    lookup("calendar.move", draw=a_move),
    lookup("calendar.delete", draw=an_event, trouble=no_event),
)
