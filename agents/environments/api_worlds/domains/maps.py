"""Distances between cities, and places in them."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import ClassVar, Literal, Self

from loopline.agents.environments.api_worlds.api import (
    ApiError,
    Name,
    Page,
    Setting,
    State,
    api,
    find_row,
    page_of,
    require_city,
)
from loopline.agents.environments.api_worlds.names import PLACE_KINDS, PLACE_WORDS, STREETS
from loopline.agents.records import JsonObject

KILOMETERS_PER_HOUR = {"car": 80, "train": 100, "bike": 20}
Kind = Literal["museum", "park", "pharmacy", "bakery", "station", "theater"]


@dataclass
class Place:
    city: str
    kind: str
    address: str
    meters: int


@dataclass(kw_only=True)
class Maps(State):
    domain: ClassVar[str] = "maps"

    cities: tuple[str, ...]
    positions: dict[str, tuple[int, int]]
    """Position of each city, in units of 10 km east and north."""
    places: dict[str, Place]

    @classmethod
    def build(cls, rng: random.Random, setting: Setting) -> Self:
        places: dict[str, Place] = {}
        for _ in range(18):
            kind, city = rng.choice(PLACE_KINDS), rng.choice(setting.cities[:4])
            name = f"{rng.choice(PLACE_WORDS)} {kind}"
            address = f"{rng.choice(STREETS)} {rng.randint(1, 99)}"
            places.setdefault(name, Place(city, kind, address, rng.randint(5, 250) * 10))
        return cls(
            cities=setting.cities,
            positions={city: (rng.randint(0, 60), rng.randint(0, 60)) for city in setting.cities},
            places=places,
        )

    def kilometers(self, origin: str, to: str) -> int:
        """Return the distance by road along the two axes; at least 20."""
        if origin == to:
            raise ApiError("origin and destination are the same city")
        here = self.positions[require_city(self.cities, origin)]
        there = self.positions[require_city(self.cities, to)]
        return 10 * max(2, abs(here[0] - there[0]) + abs(here[1] - there[1]))


@api("Distance between two cities in km")
def get_distance(maps: Maps, origin: Name, to: Name) -> JsonObject:
    return {"km": maps.kilometers(origin, to)}


@api("Minutes from city to city")
def travel_time(
    maps: Maps, origin: Name, to: Name, mode: Literal["car", "train", "bike"]
) -> JsonObject:
    return {"minutes": maps.kilometers(origin, to) * 60 // KILOMETERS_PER_HOUR[mode]}


@api("Places of a kind in a city, and how many meters away they are")
def find_places(maps: Maps, city: Name, kind: Kind, page: Page = 1) -> JsonObject:
    require_city(maps.cities, city)
    rows: list[JsonObject] = [
        {"place": name, "meters": row.meters}
        for name, row in maps.places.items()
        if (row.city, row.kind) == (city, kind)
    ]
    return page_of("places", rows, page)


@api("City and address of a place")
def get_place(maps: Maps, place: Name) -> JsonObject:
    row = find_row(maps.places, place, "place")
    return {"city": row.city, "address": row.address}
