"""Restaurants with menus and tables."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import ClassVar, Self

from pydantic import JsonValue

from loopline.agents.environments.api_worlds.api import (
    ApiError,
    Count,
    Day,
    Name,
    Page,
    Setting,
    State,
    Time,
    api,
    find_row,
    page_of,
    require_city,
)
from loopline.agents.environments.api_worlds.names import CUISINES, DISHES, RESTAURANTS, WEEKDAYS
from loopline.agents.records import JsonObject

EVENINGS: tuple[str, ...] = ("17:00", "18:00", "19:00", "20:00", "21:00", "22:00")


@dataclass
class Restaurant:
    city: str
    cuisine: str
    rating: int
    menu: dict[str, int]
    """Dish → price."""
    free: dict[str, list[str]]
    """Day → times with a free table."""


@dataclass
class TableBooking:
    restaurant: str
    day: str
    time: str
    people: int


@dataclass(kw_only=True)
class Restaurants(State):
    domain: ClassVar[str] = "restaurants"
    generated: ClassVar[frozenset[str]] = frozenset({"tables"})

    cities: tuple[str, ...]
    restaurants: dict[str, Restaurant]
    tables: dict[str, TableBooking]

    @classmethod
    def build(cls, rng: random.Random, setting: Setting) -> Self:
        places = [(rng.choice(setting.cities), rng.choice(CUISINES)) for _ in range(5)]
        names = rng.sample(RESTAURANTS, 14)
        ratings = rng.sample(range(51, 99), len(names))
        restaurants: dict[str, Restaurant] = {}
        for name, rating in zip(names, ratings, strict=True):
            city, cuisine = rng.choice(places)
            dishes = rng.sample(DISHES, 3)
            menu = dict(zip(dishes, rng.sample(range(6, 40), len(dishes)), strict=True))
            free = {day: sorted(rng.sample(EVENINGS, rng.randint(0, 3))) for day in WEEKDAYS}
            restaurants[name] = Restaurant(city, cuisine, rating, menu, free)
        issued = rng.randint(100, 800)
        tables = {
            f"T{issued + i}": TableBooking(
                name, rng.choice(WEEKDAYS), rng.choice(EVENINGS), rng.randint(1, 6)
            )
            for i, name in enumerate(names[:2])
        }
        return cls(cities=setting.cities, restaurants=restaurants, tables=tables, issued=issued + 2)


@api("Restaurants of a cuisine in a city; ratings from 0 to 100")
def search_restaurants(
    restaurants: Restaurants, city: Name, cuisine: Name, page: Page = 1
) -> JsonObject:
    require_city(restaurants.cities, city)
    rows: list[JsonObject] = [
        {"restaurant": name, "rating": row.rating}
        for name, row in restaurants.restaurants.items()
        if (row.city, row.cuisine) == (city, cuisine)
    ]
    return page_of("restaurants", rows, page)


@api("Dishes and prices of a restaurant")
def get_menu(restaurants: Restaurants, restaurant: Name) -> JsonObject:
    return {"menu": {**find_row(restaurants.restaurants, restaurant, "restaurant").menu}}


@api("Times with a free table on a day")
def table_times(restaurants: Restaurants, restaurant: Name, day: Day) -> JsonObject:
    times: list[JsonValue] = [
        *find_row(restaurants.restaurants, restaurant, "restaurant").free[day]
    ]
    return {"times": times}


@api("Reserve a table", changes=True)
def reserve_table(
    restaurants: Restaurants, restaurant: Name, day: Day, time: Time, people: Count
) -> JsonObject:
    row = find_row(restaurants.restaurants, restaurant, "restaurant")
    if time not in row.free[day]:
        raise ApiError(f"no free table on {day} at {time}")
    row.free[day].remove(time)
    table = restaurants.new_id("T")
    restaurants.tables[table] = TableBooking(restaurant, day, time, people)
    return {"reservation": table}


@api("Cancel a table reservation", changes=True)
def cancel_table(restaurants: Restaurants, reservation: Name) -> JsonObject:
    row = find_row(restaurants.tables, reservation, "reservation")
    free = restaurants.restaurants[row.restaurant].free[row.day]
    if row.time not in free:
        free.append(row.time)
        free.sort()
    del restaurants.tables[reservation]
    return {"cancelled": reservation}
