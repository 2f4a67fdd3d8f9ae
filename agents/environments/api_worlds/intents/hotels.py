"""Users' intents for hotels."""

from __future__ import annotations

import random

from loopline.agents.environments.api_worlds.domains.hotels import Hotels
from loopline.agents.environments.api_worlds.intent import (
    Answer,
    Program,
    Slots,
    Step,
    best_of,
    find_row,
    lookup,
    plan,
)
from loopline.agents.environments.api_worlds.intents.drawing import (
    a_day,
    choose_row,
    combine_draws,
    from_values,
    from_world,
    no_city,
)
from loopline.agents.environments.api_worlds.world import World

NIGHTS = from_values("nights", (2, 3, 4, 5, 6, 7))
a_hotel = from_world("hotel", lambda world: world.state(Hotels).hotels)
a_hotel_city = from_world(
    "city", lambda world: sorted({row.city for row in world.state(Hotels).hotels.values()})
)
a_free_hotel = from_world(
    "hotel", lambda world: [n for n, row in world.state(Hotels).hotels.items() if row.rooms]
)
a_full_hotel = from_world(
    "hotel", lambda world: [n for n, row in world.state(Hotels).hotels.items() if not row.rooms]
)
a_stay = from_world("stay", lambda world: world.state(Hotels).stays)
no_stay = from_values("stay", ("H11", "H25", "H37", "H49", "H58", "H66"))


def a_city_with_rooms(rng: random.Random, world: World) -> Slots | None:
    hotels = world.state(Hotels).hotels.values()
    cities = [
        city
        for city in sorted({row.city for row in hotels})
        if min((row for row in hotels if row.city == city), key=lambda row: row.price).rooms
    ]
    city = choose_row(rng, cities)
    return city and {"city": city}


def a_stay_by_hotel(rng: random.Random, world: World) -> Slots | None:
    return {"hotel": rng.choice([row.hotel for row in world.state(Hotels).stays.values()])}


def cheapest(slots: Slots) -> Program:
    best = yield from best_of(
        "search_hotels", "hotels", f"I need the hotels in {slots['city']}.",
        {"city": slots["city"]}, label="hotel", by="price",
    )  # fmt: skip
    hotel, price = best["hotel"], best["price"]
    return Answer(
        f"The cheapest is {hotel} for {price} dollars a night.", (hotel, price),
        f"{hotel} with {price} is the cheapest.",
    )  # fmt: skip


def book_cheapest(slots: Slots) -> Program:
    best = yield from best_of(
        "search_hotels", "hotels", f"I need the hotels in {slots['city']}.",
        {"city": slots["city"]}, label="hotel", by="price",
    )  # fmt: skip
    hotel = best["hotel"]
    booked = yield Step(
        f"{hotel} is the cheapest, so I book it.", "book_hotel",
        {"hotel": hotel, "day": slots["day"], "nights": slots["nights"]},
    )  # fmt: skip
    return Answer(f"I booked {hotel} for {booked['total']} dollars.", (hotel,))


def cancel_by_hotel(slots: Slots) -> Program:
    hotel = slots["hotel"]
    row = yield from find_row(
        "list_hotel_stays", "stays", f"I need my stay at {hotel}.", {}, "hotel", hotel
    )
    stay = row["stay"]
    yield Step(f"The stay is {stay}. I cancel it.", "cancel_hotel", {"stay": stay})
    return Answer(f"Your stay {stay} at {hotel} is cancelled.")


INTENTS = (
    lookup("hotels.stars", draw=a_hotel),
    lookup("hotels.price", draw=a_hotel),
    plan("hotels.cheapest", cheapest, draw=a_hotel_city, trouble=no_city),
    lookup(
        "hotels.book",
        draw=combine_draws(a_free_hotel, a_day, NIGHTS),
        trouble=combine_draws(a_full_hotel, a_day, NIGHTS),
    ),
    plan(
        "hotels.book_cheapest",
        book_cheapest,
        draw=combine_draws(a_city_with_rooms, a_day, NIGHTS),
        trouble=combine_draws(no_city, a_day, NIGHTS),
    ),
    lookup("hotels.cancel", draw=a_stay, trouble=no_stay),
    plan("hotels.cancel_by_hotel", cancel_by_hotel, draw=a_stay_by_hotel),
)
