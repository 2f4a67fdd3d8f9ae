"""Parcels on their way, and new ones."""

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
from loopline.agents.environments.api_worlds.names import WEEKDAYS
from loopline.agents.records import JsonObject


@dataclass
class Parcel:
    status: str
    city: str
    arrives: str


@dataclass(kw_only=True)
class Parcels(State):
    domain: ClassVar[str] = "parcels"
    generated: ClassVar[frozenset[str]] = frozenset({"posted"})

    cities: tuple[str, ...]
    fees: dict[str, int]
    """City → dollars per kg."""
    parcels: dict[str, Parcel]
    posted: dict[str, tuple[str, int]]
    """Parcel → city and kg."""

    @classmethod
    def build(cls, rng: random.Random, setting: Setting) -> Self:
        numbers = rng.sample(range(1000, 10_000), 6)
        return cls(
            cities=setting.cities,
            fees={city: rng.randint(2, 15) for city in setting.cities},
            parcels={
                f"P{number}": Parcel(
                    rng.choice(("in transit", "in transit", "delivered")),
                    rng.choice(setting.cities),
                    rng.choice(WEEKDAYS),
                )
                for number in numbers
            },
            posted={},
            issued=rng.randint(100, 800),
        )


@api("Status, city and arrival day of a parcel")
def track_parcel(parcels: Parcels, parcel: Name) -> JsonObject:
    row = find_row(parcels.parcels, parcel, "parcel")
    return {"status": row.status, "city": row.city, "arrives": row.arrives}


@api("My parcels and where they are")
def list_parcels(parcels: Parcels, page: Page = 1) -> JsonObject:
    rows: list[JsonObject] = [
        {"parcel": parcel, "city": row.city} for parcel, row in parcels.parcels.items()
    ]
    return page_of("parcels", rows, page)


@api("Have a parcel delivered on another day", changes=True)
def change_delivery(parcels: Parcels, parcel: Name, day: Day) -> JsonObject:
    row = find_row(parcels.parcels, parcel, "parcel")
    if row.status == "delivered":
        raise ApiError(f"{parcel} was delivered before")
    row.arrives = day
    return {"arrives": day}


@api("Price of sending a parcel")
def quote_parcel(parcels: Parcels, to: Name, kg: Count) -> JsonObject:
    return {"price": parcels.fees[require_city(parcels.cities, to)] * kg}


@api("Send a parcel to a city", changes=True)
def send_parcel(parcels: Parcels, to: Name, kg: Count) -> JsonObject:
    price = parcels.fees[require_city(parcels.cities, to)] * kg
    parcel = parcels.new_id("Q")
    parcels.posted[parcel] = (to, kg)
    return {"parcel": parcel, "price": price}
