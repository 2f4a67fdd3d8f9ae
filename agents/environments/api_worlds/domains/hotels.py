"""Hotels with prices, rooms and reservations."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import ClassVar, Self

from loopline.agents.environments.api_worlds.api import (
    ApiError,
    Count,
    Day,
    Name,
    Page,
    Setting,
    State,
    api,
    find_row,
    page_of,
    require_city,
)
from loopline.agents.environments.api_worlds.names import HOTELS, WEEKDAYS
from loopline.agents.records import JsonObject


@dataclass
class Hotel:
    city: str
    price: int
    stars: int
    rooms: int


@dataclass
class HotelStay:
    hotel: str
    day: str
    nights: int


@dataclass(kw_only=True)
class Hotels(State):
    domain: ClassVar[str] = "hotels"
    generated: ClassVar[frozenset[str]] = frozenset({"stays"})

    cities: tuple[str, ...]
    hotels: dict[str, Hotel]
    stays: dict[str, HotelStay]

    @classmethod
    def build(cls, rng: random.Random, setting: Setting) -> Self:
        names = rng.sample(HOTELS, 14)
        prices = rng.sample(range(50, 300, 5), len(names))
        cities = rng.sample(setting.cities, 5)
        hotels = {
            name: Hotel(
                rng.choice(cities),
                price,
                rng.randint(1, 5),
                0 if rng.random() < 0.15 else rng.randint(1, 9),
            )
            for name, price in zip(names, prices, strict=True)
        }
        issued = rng.randint(100, 800)
        stays = {
            f"H{issued + i}": HotelStay(name, rng.choice(WEEKDAYS), rng.randint(1, 5))
            for i, name in enumerate(names[:3])
        }
        return cls(cities=setting.cities, hotels=hotels, stays=stays, issued=issued + 3)


@api("Hotels in a city")
def search_hotels(hotels: Hotels, city: Name, page: Page = 1) -> JsonObject:
    require_city(hotels.cities, city)
    rows: list[JsonObject] = [
        {"hotel": name, "price": row.price, "stars": row.stars}
        for name, row in hotels.hotels.items()
        if row.city == city
    ]
    return page_of("hotels", rows, page)


@api("City, price per night, stars and free rooms of a hotel")
def get_hotel(hotels: Hotels, hotel: Name) -> JsonObject:
    row = find_row(hotels.hotels, hotel, "hotel")
    return {"city": row.city, "price": row.price, "stars": row.stars, "rooms": row.rooms}


@api("Book a hotel room from a day on", changes=True)
def book_hotel(hotels: Hotels, hotel: Name, day: Day, nights: Count) -> JsonObject:
    row = find_row(hotels.hotels, hotel, "hotel")
    if not row.rooms:
        raise ApiError(f"{hotel} has no rooms left")
    row.rooms -= 1
    stay = hotels.new_id("H")
    hotels.stays[stay] = HotelStay(hotel, day, nights)
    return {"stay": stay, "total": row.price * nights}


@api("Cancel a hotel stay", changes=True)
def cancel_hotel(hotels: Hotels, stay: Name) -> JsonObject:
    row = find_row(hotels.stays, stay, "stay")
    hotels.hotels[row.hotel].rooms += 1
    del hotels.stays[stay]
    return {"cancelled": stay}


@api("My hotel stays")
def list_hotel_stays(hotels: Hotels, page: Page = 1) -> JsonObject:
    rows: list[JsonObject] = [
        {"hotel": row.hotel, "stay": stay, "day": row.day, "nights": row.nights}
        for stay, row in hotels.stays.items()
    ]
    return page_of("stays", rows, page)
