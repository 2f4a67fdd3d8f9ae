"""What users want of flights."""

# ruff: noqa: E501 (one wording, one line)

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
    both,
    fixed,
    from_world,
    no_route,
    one,
)
from loopline.agents.environments.api_worlds.world import World


def a_route(rng: random.Random, world: World) -> Slots | None:
    row = one(rng, world.state(Flights).flights.values())
    return {"origin": row.origin, "to": row.to, "day": row.day}


def a_route_with_seats(rng: random.Random, world: World) -> Slots | None:
    rows = [row for row in world.state(Flights).flights.values() if row.seats > 1]
    row = one(rng, rows)
    if row is None:
        return None
    seats = rng.randint(2, min(row.seats, 4))
    return {"origin": row.origin, "to": row.to, "day": row.day, "seats": seats}


def a_free_flight(rng: random.Random, world: World) -> Slots | None:
    found = one(rng, [(n, row) for n, row in world.state(Flights).flights.items() if row.seats > 1])
    return found and {"flight": found[0], "seats": rng.randint(2, min(found[1].seats, 4))}


def a_full_flight(rng: random.Random, world: World) -> Slots | None:
    found = one(rng, [(n, row) for n, row in world.state(Flights).flights.items() if row.seats < 4])
    return found and {"flight": found[0], "seats": rng.randint(max(2, found[1].seats + 1), 5)}


def two_flights(rng: random.Random, world: World) -> Slots | None:
    flights = world.state(Flights).flights
    first, other = rng.sample(sorted(flights), 2)
    seats = rng.randint(2, 4)
    return (
        {"flight": first, "other": other, "seats": seats} if flights[other].seats >= seats else None
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
no_flight = fixed("flight", ("QQ11", "ZX20", "WV35", "XY77", "QZ48", "VV90"))
no_booking = fixed("booking", ("F11", "F23", "F38", "F45", "F57", "F62", "F74", "F89"))


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
    flight, other, seats = slots["flight"], slots["other"], slots["seats"]
    try:
        yield Step(f"First I try {flight}.", "book_flight", {"flight": flight, "seats": seats})
    except ToolError:
        yield Step(
            f"{flight} has too few seats, so I book {other}.",
            "book_flight", {"flight": other, "seats": seats},
        )  # fmt: skip
        flight, other = other, flight
    return Answer(f"I booked flight {flight}.", (flight,), wrong=(other,))


def cancel_by_flight(slots: Slots) -> Program:
    flight = slots["flight"]
    row = yield from find_row(
        "list_flight_bookings", "bookings", f"I need my booking of {flight}.", {}, "flight", flight
    )
    booking = row["booking"]
    yield Step(f"The booking is {booking}. I cancel it.", "cancel_flight", {"booking": booking})
    return Answer(f"Booking {booking} for flight {flight} is cancelled.")


INTENTS = (
    lookup("flights.time", "get_flight", "flight", "I look up flight {flight}.",
           "Flight {flight} leaves at {time}.", """
        When does flight {flight} leave?
        What time does flight {flight} [depart|take off]?
        At what time is the departure of {flight}?
        Tell me when flight {flight} leaves.
        Find out the departure time of flight {flight}.
        I need the departure time of {flight}.
        {flight} - when does it take off?
        Check at what time flight {flight} [leaves|departs].
        My flight is {flight}. What time does it leave?
        Look up when {flight} departs.
        """, draw=a_flight, facts="time", trouble=no_flight),
    plan("flights.cheapest", "search_flights", cheapest, """
        What is the cheapest flight from {origin} to {to} on {day}?
        Which flight from {origin} to {to} on {day} [costs the least|is the cheapest], and what does it cost?
        Find the cheapest flight from {origin} to {to} on {day}.
        On {day} I want to fly from {origin} to {to}. Which flight is the cheapest?
        Tell me the cheapest flight to {to} from {origin} on {day} and its price.
        I look for the cheapest {day} flight from {origin} to {to}.
        Show me the lowest price for a flight from {origin} to {to} on {day}.
        How much is the cheapest flight on {day} from {origin} to {to}, and which one is it?
        {origin} to {to}, {day}: which flight has the lowest price?
        Look for the least expensive flight from {origin} to {to} on {day}.
        """, draw=a_route, trouble=both(no_route, a_day)),
    plan("flights.book_cheapest", "search_flights book_flight", book_cheapest, """
        Book {seats} [seats|places] on the cheapest flight from {origin} to {to} on {day}.
        Find the cheapest flight from {origin} to {to} on {day} and book {seats} seats.
        I need {seats} seats on the cheapest flight from {origin} to {to} on {day}.
        On {day} {seats} of us fly from {origin} to {to}. Book the cheapest flight.
        Reserve {seats} seats on the cheapest {day} flight from {origin} to {to}.
        Get me {seats} seats from {origin} to {to} on {day}, as cheap as possible.
        Buy {seats} seats for the least expensive flight to {to} from {origin} on {day}.
        Make a booking of {seats} seats for {day} from {origin} to {to} on the cheapest flight.
        {origin} to {to} on {day}, {seats} seats: book the cheapest flight.
        We want to go to {to} from {origin} on {day}. Book {seats} seats at the lowest price.
        """, draw=a_route_with_seats, trouble=both(no_route, a_day, fixed("seats", (2, 3, 4)))),
    lookup("flights.book", "book_flight", "flight seats", "I book {seats} seats on {flight}.",
           "I booked {seats} seats on flight {flight} for {total} dollars.", """
        Book {seats} seats on flight {flight}.
        Reserve {seats} [places|seats] on {flight}.
        I need {seats} seats on flight {flight}.
        Get me {seats} seats on {flight}.
        Make a booking of {seats} seats for flight {flight}.
        I want to fly with {flight}. Book {seats} seats.
        Buy {seats} seats for flight {flight}.
        Flight {flight}, {seats} seats: book it.
        Put me on flight {flight} with {seats} seats.
        """, draw=a_free_flight, trouble=a_full_flight),
    plan("flights.book_or", "book_flight", book_or, """
        Book {seats} seats on flight {flight}, or on {other} if that fails.
        Try to book {seats} seats on {flight}. If it is full, take {other}.
        I want {seats} seats on {flight}; if there are too few, book {other}.
        Get me {seats} seats on flight {flight}, else on flight {other}.
        Reserve {seats} seats on {flight}, and if that is impossible, on {other}.
        {seats} seats on {flight}, otherwise on {other}: book that.
        Book flight {flight} with {seats} seats, or else flight {other}.
        If {flight} still has {seats} seats, book them, otherwise book {other}.
        """, draw=two_flights),
    lookup("flights.cancel", "cancel_flight", "booking", "I cancel {booking}.",
           "Booking {booking} is cancelled, and you get {refund} dollars back.", """
        Cancel my flight booking {booking}.
        I do not need booking {booking} any more. Cancel the flight.
        Delete flight booking {booking}.
        Cancel the flight with booking number {booking}.
        I want to cancel my flight. The booking is {booking}.
        Give back my flight booking {booking}.
        Drop the flight booking {booking}.
        My flight {booking} has to be cancelled.
        """, draw=a_booking, trouble=no_booking),
    plan("flights.cancel_by_flight", "list_flight_bookings cancel_flight", cancel_by_flight, """
        Cancel my booking for flight {flight}.
        I booked flight {flight}, but I cannot go. Cancel it.
        I do not want to fly with {flight}. Cancel my booking.
        Find my booking of flight {flight} and cancel it.
        Drop my seats on flight {flight}.
        Give back my seats on {flight}.
        My booking on {flight} must be cancelled.
        Remove me from flight {flight}.
        Look up which booking is for {flight} and cancel it.
        """, draw=a_booked_flight, trouble=an_unbooked_flight),
)  # fmt: skip
