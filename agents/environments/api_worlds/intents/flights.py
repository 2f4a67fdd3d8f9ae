"""Users' intents for flights."""

from __future__ import annotations

import random

from loopline.agents.environments.api_worlds.domains.flights import Flights
from loopline.agents.environments.api_worlds.intent import (
    Answer,
    Program,
    Slots,
    Step,
    ToolError,
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
    no_route,
)
from loopline.agents.environments.api_worlds.world import World


def a_route(rng: random.Random, world: World) -> Slots | None:
    row = choose_row(rng, world.state(Flights).flights.values())
    return {"origin": row.origin, "to": row.to, "day": row.day}


def a_route_with_seats(rng: random.Random, world: World) -> Slots | None:
    rows = [row for row in world.state(Flights).flights.values() if row.seats > 1]
    row = choose_row(rng, rows)
    if row is None:
        return None
    seats = rng.randint(2, min(row.seats, 4))
    return {"origin": row.origin, "to": row.to, "day": row.day, "seats": seats}


def a_free_flight(rng: random.Random, world: World) -> Slots | None:
    pick = choose_row(
        rng, [(n, row) for n, row in world.state(Flights).flights.items() if row.seats > 1]
    )
    return pick and {"flight": pick[0], "seats": rng.randint(2, min(pick[1].seats, 4))}


def a_full_flight(rng: random.Random, world: World) -> Slots | None:
    pick = choose_row(
        rng, [(n, row) for n, row in world.state(Flights).flights.items() if row.seats < 4]
    )
    return pick and {"flight": pick[0], "seats": rng.randint(max(2, pick[1].seats + 1), 5)}


def two_flights(rng: random.Random, world: World) -> Slots | None:
    flights = world.state(Flights).flights
    first, other_flight = rng.sample(sorted(flights), 2)
    seats = rng.randint(2, 4)
    return (
        {"flight": first, "other": other_flight, "seats": seats}
        if flights[other_flight].seats >= seats
        else None
    )


a_flight = from_world("flight", lambda world: world.state(Flights).flights)
a_booking = from_world("booking", lambda world: world.state(Flights).bookings)
a_booked_flight = from_world(
    "flight",
    lambda world: sorted({row.flight for row in world.state(Flights).bookings.values()}),
)
an_unbooked_flight = from_world(
    "flight",
    lambda world: sorted(
        set(world.state(Flights).flights)
        - {row.flight for row in world.state(Flights).bookings.values()}
    ),
)
no_flight = from_values("flight", ("QQ11", "ZX20", "WV35", "XY77", "QZ48", "VV90"))
no_booking = from_values("booking", ("F11", "F23", "F38", "F45", "F57", "F62", "F74", "F89"))


def cheapest(slots: Slots) -> Program:
    best = yield from best_of(
        "search_flights", "flights",
        "I need the flights from {origin} to {to} on {day}.".format(**slots),
        {key: slots[key] for key in ("origin", "to", "day")}, label="flight", by="price",
    )  # fmt: skip
    flight, price = best["flight"], best["price"]
    return Answer(
        f"The cheapest flight is {flight} for {price} dollars.", (flight, price),
        f"{flight} with {price} is the cheapest.",
    )  # fmt: skip


def book_cheapest(slots: Slots) -> Program:
    seats = slots["seats"]
    best = yield from best_of(
        "search_flights", "flights",
        "I need the flights from {origin} to {to} on {day}.".format(**slots),
        {key: slots[key] for key in ("origin", "to", "day")}, label="flight", by="price",
        enough=("seats", seats),
    )  # fmt: skip
    flight = best["flight"]
    booked = yield Step(
        f"{flight} is the cheapest with {seats} seats, so I book it.",
        "book_flight", {"flight": flight, "seats": seats},
    )  # fmt: skip
    return Answer(f"I booked flight {flight} for {booked['total']} dollars.", (flight,))


def book_or(slots: Slots) -> Program:
    flight, other_flight, seats = slots["flight"], slots["other"], slots["seats"]
    try:
        yield Step(f"First I try {flight}.", "book_flight", {"flight": flight, "seats": seats})
    except ToolError:
        yield Step(
            f"{flight} has too few seats, so I book {other_flight}.",
            "book_flight", {"flight": other_flight, "seats": seats},
        )  # fmt: skip
        flight, other_flight = other_flight, flight
    return Answer(f"I booked flight {flight}.", (flight,), wrong=(other_flight,))


def cancel_by_flight(slots: Slots) -> Program:
    flight = slots["flight"]
    row = yield from find_row(
        "list_flight_bookings", "bookings", f"I need my booking of {flight}.", {}, "flight", flight
    )
    booking = row["booking"]
    yield Step(f"The booking is {booking}. I cancel it.", "cancel_flight", {"booking": booking})
    return Answer(f"Booking {booking} for flight {flight} is cancelled.")


INTENTS = (
    lookup("flights.time", draw=a_flight, trouble=no_flight),
    plan("flights.cheapest", cheapest, draw=a_route, trouble=combine_draws(no_route, a_day)),
    plan(
        "flights.book_cheapest",
        book_cheapest,
        draw=a_route_with_seats,
        trouble=combine_draws(no_route, a_day, from_values("seats", (2, 3, 4))),
    ),
    lookup("flights.book", draw=a_free_flight, trouble=a_full_flight),
    plan("flights.book_or", book_or, draw=two_flights),
    lookup("flights.cancel", draw=a_booking, trouble=no_booking),
    plan(
        "flights.cancel_by_flight",
        cancel_by_flight,
        draw=a_booked_flight,
        trouble=an_unbooked_flight,
    ),
)
