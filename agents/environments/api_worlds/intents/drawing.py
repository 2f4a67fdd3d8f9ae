"""Draws of slots for many intents."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from loopline.agents.environments.api_worlds.intent import Draw, Slots
from loopline.agents.environments.api_worlds.names import CITIES, NO_CITIES, WEEKDAYS
from loopline.agents.environments.api_worlds.world import World


def choose_row(rng: random.Random, rows: Iterable[Any]) -> Any:
    """Choose one of the rows; `None` if there are none."""
    there: Sequence[Any] = tuple(rows)
    return rng.choice(there) if there else None


def from_world(slot: str, rows: Callable[[World], Iterable[Any]]) -> Draw:
    """Return a draw of one slot from rows of the world."""

    def draw(rng: random.Random, world: World) -> Slots | None:
        value = choose_row(rng, rows(world))
        return None if value is None else {slot: value}

    return draw


def from_values(slot: str, values: Sequence[Any]) -> Draw:
    """Return a draw of one slot from values that every world has."""
    return lambda rng, world: {slot: rng.choice(values)}


def combine_draws(*draws: Draw) -> Draw:
    """Return a draw of the slots of several draws."""

    def draw(rng: random.Random, world: World) -> Slots | None:
        slots: Slots = {}
        for draw_part in draws:
            drawn = draw_part(rng, world)
            if drawn is None:
                return None
            slots.update(drawn)
        return slots

    return draw


a_day = from_values("day", WEEKDAYS)
a_city = from_world("city", lambda world: world.setting.cities)
no_city = from_values("city", NO_CITIES)


def two_cities(rng: random.Random, world: World) -> Slots:
    origin, to = rng.sample(world.setting.cities, 2)
    return {"origin": origin, "to": to}


def no_route(rng: random.Random, world: World) -> Slots:
    """Draw a route to a place unknown in this world."""
    strange = [*NO_CITIES, *(city for city in CITIES if city not in world.setting.cities)]
    return {"origin": rng.choice(world.setting.cities), "to": rng.choice(strange)}
