"""What users want of hotels."""

# ruff: noqa: E501 (one wording, one line)

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
    both,
    fixed,
    from_world,
    no_city,
    one,
)
from loopline.agents.environments.api_worlds.world import World

NIGHTS = fixed("nights", (2, 3, 4, 5, 6, 7))
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
no_stay = fixed("stay", ("H11", "H25", "H37", "H49", "H58", "H66"))


def a_city_with_rooms(rng: random.Random, world: World) -> Slots | None:
    hotels = world.state(Hotels).hotels.values()
    cities = [
        city
        for city in sorted({row.city for row in hotels})
        if min((row for row in hotels if row.city == city), key=lambda row: row.price).rooms
    ]
    city = one(rng, cities)
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
    lookup("hotels.stars", "get_hotel", "hotel", "I look up {hotel}.", "{hotel} has {stars} stars.", """
        How many stars does {hotel} have?
        What is the number of stars of {hotel}?
        Tell me how many stars {hotel} has.
        Find out how many stars {hotel} got.
        Check the stars of {hotel}.
        I want to know the stars of {hotel}.
        {hotel}: how many stars is that?
        Look up the star rating of {hotel}.
        """, draw=a_hotel, facts="stars"),
    lookup("hotels.price", "get_hotel", "hotel", "I look up {hotel}.",
           "A night at {hotel} costs {price} dollars.", """
        What does a night at {hotel} cost?
        How much is {hotel} per night?
        Tell me the price of a night at {hotel}.
        Find out what {hotel} costs.
        Check the price per night of {hotel}.
        I want to know how expensive a night at {hotel} is.
        {hotel}: what is the price per night?
        Look up how much a night at {hotel} costs.
        """, draw=a_hotel, facts="price"),
    plan("hotels.cheapest", "search_hotels", cheapest, """
        What is the cheapest hotel in {city}?
        Which hotel in {city} [costs the least|is the cheapest], and what does it cost?
        Find the cheapest hotel in {city}.
        I am going to {city}. Which hotel is the cheapest?
        Tell me the cheapest hotel in {city} and its price.
        I look for the cheapest hotel in {city}.
        Show me the least expensive hotel in {city}.
        {city}: which hotel has the lowest price?
        """, draw=a_hotel_city, trouble=no_city),
    lookup("hotels.book", "book_hotel", "hotel day nights", "I book {hotel} from {day}.",
           "I booked {hotel} from {day} for {nights} nights, {total} dollars in all.", """
        Book {nights} nights at {hotel} from {day}.
        Reserve a room at {hotel} from {day} for {nights} nights.
        I need a room at {hotel} for {nights} nights from {day} on.
        Get me {nights} nights at {hotel} starting on {day}.
        I arrive on {day} and stay {nights} nights at {hotel}. Book a room.
        {hotel}, {nights} nights from {day}: book it.
        Make a reservation at {hotel} for {nights} nights from {day}.
        From {day} I want to stay at {hotel} for {nights} nights. Book it.
        """, draw=both(a_free_hotel, a_day, NIGHTS), trouble=both(a_full_hotel, a_day, NIGHTS)),
    plan("hotels.book_cheapest", "search_hotels book_hotel", book_cheapest, """
        Book {nights} nights at the cheapest hotel in {city} from {day}.
        Find the cheapest hotel in {city} and book {nights} nights from {day}.
        I need a room in {city} for {nights} nights from {day}, as cheap as possible.
        Reserve the cheapest hotel in {city} from {day} for {nights} nights.
        Get me {nights} nights in {city} from {day} at the lowest price.
        {city}, {nights} nights from {day}: book the cheapest hotel.
        I arrive in {city} on {day} for {nights} nights. Book the cheapest hotel.
        Take the least expensive hotel in {city} and book it from {day} for {nights} nights.
        """, draw=both(a_city_with_rooms, a_day, NIGHTS), trouble=both(no_city, a_day, NIGHTS)),
    lookup("hotels.cancel", "cancel_hotel", "stay", "I cancel {stay}.", "Stay {stay} is cancelled.", """
        Cancel my hotel stay {stay}.
        I do not need the hotel stay {stay} any more. Cancel it.
        Delete hotel stay {stay}.
        Cancel the hotel with number {stay}.
        Drop my stay {stay} at the hotel.
        My hotel stay {stay} has to be cancelled.
        I want to cancel the stay {stay}.
        Give back my hotel room {stay}.
        """, draw=a_stay, trouble=no_stay),
    plan("hotels.cancel_by_hotel", "list_hotel_stays cancel_hotel", cancel_by_hotel, """
        Cancel my stay at {hotel}.
        I booked {hotel}, but I cannot go. Cancel it.
        I do not want to stay at {hotel}. Cancel it.
        Find my stay at {hotel} and cancel it.
        Drop my room at {hotel}.
        Give back my room at {hotel}.
        My stay at {hotel} must be cancelled.
        Look up which stay is at {hotel} and cancel it.
        """, draw=a_stay_by_hotel),
)  # fmt: skip
