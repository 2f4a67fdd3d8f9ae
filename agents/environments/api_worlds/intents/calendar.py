"""What users want of their calendar."""

# ruff: noqa: E501 (one wording, one line)

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
    counted,
    lookup,
    numbered,
    plan,
)
from loopline.agents.environments.api_worlds.intents.drawing import a_day, from_world, one
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
    time = one(rng, world.state(Calendar).free(day))
    return new and time and {**new, "day": day, "time": time}


def a_taken_hour(rng: random.Random, world: World) -> Slots | None:
    event, new = rng.choice([*world.state(Calendar).events.values()]), no_event(rng, world)
    return new and {**new, "day": event.day, "time": event.time}


def a_new_event_on_a_day(rng: random.Random, world: World) -> Slots | None:
    new = no_event(rng, world)
    return new and {**new, "day": rng.choice(WEEKDAYS)}


def a_move(rng: random.Random, world: World) -> Slots | None:
    calendar, day = world.state(Calendar), rng.choice(WEEKDAYS)
    time = one(rng, calendar.free(day))
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
    yield numbered(row["title"] for row in observation["events"])
    count = len(observation["events"])
    told = counted(count, "event")
    return Answer(f"You have {told} on {day}.", (count,), f"I count {told} on {day}.")


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
    lookup("calendar.when", "find_event", "title", "I look up {title}.",
           "{title} is on {day} at {time}.", """
        When is my event {title}?
        On which day and at what time is {title}?
        Tell me when {title} takes place.
        Find the event {title} and tell me its day and time.
        What are the day and time of {title} in my calendar?
        I forgot when {title} is. Look it up in my calendar.
        Look in my calendar for {title}: when is it?
        {title}: which day and what time?
        Check when {title} is in my calendar.
        """, draw=an_event, facts="day time", trouble=no_event),
    plan("calendar.count", "list_events", count_events, """
        How many events do I have on {day}?
        How many entries are in my calendar on {day}?
        Count my events on {day}.
        Tell me how many events there are on {day}.
        How full is my {day}? Count the events.
        What is the number of events in my calendar for {day}?
        I want to know how many events I have on {day}.
        {day}: how many events are planned?
        Look at my calendar and count the events of {day}.
        """, draw=a_day),
    plan("calendar.first", "list_events", first_event, """
        What is my first event on {day}?
        Which event comes first on {day}?
        Tell me the first event of {day} in my calendar.
        With which event does my {day} begin?
        How does my {day} start? Look at my calendar.
        Find my first event on {day}.
        {day}: what is the first event?
        What do I have to do first on {day}, according to my calendar?
        Look up the earliest event on {day}.
        """, draw=a_busy_day),
    lookup("calendar.add", "add_event", "title day time", "I add it on {day} at {time}.",
           "{title} is in your calendar on {day} at {time}.", """
        Add {title} to my calendar on {day} at {time}.
        Put {title} into my calendar for {day}, {time}.
        Plan {title} for {day} at {time}.
        Schedule {title} on {day} at {time}.
        I have {title} on {day} at {time}. Put it into the calendar.
        Create an event {title} at {time} on {day}.
        On {day} at {time} there is {title}. Add it to my calendar.
        {title}, {day}, {time}: add it to the calendar.
        Enter {title} in the calendar: {day} at {time}.
        Make an entry {title} at {time} on {day}.
        """, draw=a_free_hour, trouble=a_taken_hour),
    plan("calendar.add_at_first_free", "free_hours add_event", add_at_first_free, """
        Add {title} at my first free hour on {day}.
        Put {title} into the first free hour of {day}.
        Find my first free hour on {day} and plan {title} there.
        Schedule {title} on {day} as early as possible.
        On {day} I want {title} at the first free time. Add it.
        Plan {title} for {day}, at the earliest free hour.
        Look for the first free hour on {day} and enter {title}.
        I need {title} on {day}. Take the earliest hour that is free.
        {title} on {day} at the first hour that is free: add it.
        """, draw=a_new_event_on_a_day),
    plan("calendar.add_or_later", "add_event", add_or_later, """
        Add {title} on {day} at {time}, or at {later} if that is taken.
        Plan {title} for {day} at {time}. If there is a conflict, take {later}.
        Put {title} on {day} at {time}, otherwise at {later}.
        Schedule {title} on {day} at {time}, else at {later}.
        I want {title} on {day} at {time}, and if I am busy, at {later}.
        Try to enter {title} on {day} at {time}; if it is taken, use {later}.
        {title} on {day} at {time} or else at {later}: add it.
        If {time} is free on {day}, plan {title} there, otherwise at {later}.
        """, draw=a_wish),
    lookup("calendar.move", "move_event", "title day time", "I move it to {day} at {time}.",
           "{title} is now on {day} at {time}.", """
        Move {title} to {day} at {time}.
        Change {title} to {day}, {time}.
        {title} is now on {day} at {time}. Move it.
        Shift the event {title} to {day} at {time}.
        Put {title} off to {day} at {time}.
        Reschedule {title} for {day} at {time}.
        My event {title} has to be moved to {day} at {time}.
        Let {title} take place on {day} at {time} instead.
        """, draw=a_move),
    lookup("calendar.delete", "delete_event", "title", "I delete {title}.", "{title} is deleted.", """
        Delete {title} from my calendar.
        Remove the event {title}.
        {title} does not take place. Delete it.
        Cancel {title} in my calendar.
        Take {title} out of my calendar.
        I do not go to {title}. Remove the event.
        Drop the event {title}.
        My calendar should not have {title} any more.
        Strike {title} off my calendar.
        """, draw=an_event, trouble=no_event),
)  # fmt: skip
