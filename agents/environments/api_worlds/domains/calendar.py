"""A calendar of one week: events of one hour between nine and five."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import ClassVar, Self

from pydantic import JsonValue

from loopline.agents.environments.api_worlds.api import (
    ApiError,
    Day,
    Name,
    Setting,
    State,
    Time,
    api,
    find_row,
)
from loopline.agents.environments.api_worlds.names import EVENTS, WEEKDAYS
from loopline.agents.records import JsonObject

HOURS = tuple(f"{hour:02}:00" for hour in range(9, 17))


@dataclass
class Event:
    day: str
    time: str
    city: str


@dataclass(kw_only=True)
class Calendar(State):
    domain: ClassVar[str] = "calendar"

    events: dict[str, Event]

    @classmethod
    def build(cls, rng: random.Random, setting: Setting) -> Self:
        slots = [(day, time) for day in WEEKDAYS for time in HOURS]
        busy = rng.choice(WEEKDAYS)
        busy_slots = [(busy, time) for time in rng.sample(HOURS, 6)]
        busy_slots += rng.sample([slot for slot in slots if slot[0] != busy], 10)
        rng.shuffle(busy_slots)
        names = rng.sample(EVENTS, len(busy_slots))
        events = {
            name: Event(day, time, rng.choice(setting.cities))
            for name, (day, time) in zip(names, busy_slots, strict=True)
        }
        return cls(events=events)

    def free(self, day: str) -> list[str]:
        """Return the hours of a day without an event."""
        busy_times = {event.time for event in self.events.values() if event.day == day}
        return [time for time in HOURS if time not in busy_times]

    def check_free(self, day: str, time: str) -> None:
        """Raise `ApiError` for an hour that is taken or outside the day."""
        if time not in HOURS:
            raise ApiError(f"times are full hours from {HOURS[0]} to {HOURS[-1]}")
        for title, event in self.events.items():
            if (event.day, event.time) == (day, time):
                raise ApiError(f"conflict with {title} on {day} at {time}")


@api("Events of a day")
def list_events(calendar: Calendar, day: Day) -> JsonObject:
    rows: list[JsonValue] = [
        {"title": title, "time": event.time}
        for title, event in sorted(calendar.events.items(), key=lambda item: item[1].time)
        if event.day == day
    ]
    return {"events": rows}


@api("Day, time and city of an event")
def find_event(calendar: Calendar, title: Name) -> JsonObject:
    event = find_row(calendar.events, title, "event")
    return {"day": event.day, "time": event.time, "city": event.city}


@api("Free hours of a day")
def free_hours(calendar: Calendar, day: Day) -> JsonObject:
    return {"free": [*calendar.free(day)]}


@api("Add an event to the calendar", changes=True)
def add_event(calendar: Calendar, title: Name, day: Day, time: Time) -> JsonObject:
    if title in calendar.events:
        raise ApiError(f"there is already an event {title}")
    calendar.check_free(day, time)
    calendar.events[title] = Event(day, time, "")
    return {"added": title}


@api("Move an event to another time", changes=True)
def move_event(calendar: Calendar, title: Name, day: Day, time: Time) -> JsonObject:
    event = find_row(calendar.events, title, "event")
    calendar.check_free(day, time)
    event.day, event.time = day, time
    return {"moved": title}


@api("Delete an event", changes=True)
def delete_event(calendar: Calendar, title: Name) -> JsonObject:
    find_row(calendar.events, title, "event")
    del calendar.events[title]
    return {"deleted": title}
