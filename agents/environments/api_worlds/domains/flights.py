"""Flights between cities, with seats, prices and bookings."""

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
class Flight:
    origin: str
    to: str
    day: str
    time: str
    price: int
    seats: int


@dataclass
class FlightBooking:
    flight: str
    seats: int


@dataclass(kw_only=True)
class Flights(State):
    domain: ClassVar[str] = "flights"
    generated: ClassVar[frozenset[str]] = frozenset({"bookings"})

    cities: tuple[str, ...]
    flights: dict[str, Flight]
    bookings: dict[str, FlightBooking]

    @classmethod
    def build(cls, rng: random.Random, setting: Setting) -> Self:
        flights: dict[str, Flight] = {}
        for _ in range(7):
            origin, to = rng.sample(setting.cities, 2)
            day, count = rng.choice(WEEKDAYS), rng.choice((1, 2, 2, 3, 3, 4, 5))
            prices = rng.sample(range(40, 400, 5), count)
            hours = sorted(rng.sample(range(6, 23), count))
            for price, hour in zip(prices, hours, strict=True):
                number = f"{rng.choice('ABEKLS')}{rng.choice('AFHMTZ')}{rng.randint(10, 99)}"
                seats = 0 if rng.random() < 0.15 else rng.randint(1, 9)
                time = f"{hour:02}:{rng.choice(('00', '15', '30', '45'))}"
                flights[number] = Flight(origin, to, day, time, price, seats)
        issued = rng.randint(100, 800)
        booked = rng.sample(sorted(flights), 3)
        bookings = {
            f"F{issued + i}": FlightBooking(number, rng.randint(1, 3))
            for i, number in enumerate(booked)
        }
        return cls(
            cities=setting.cities, flights=flights, bookings=bookings, issued=issued + len(booked)
        )


@api("Flights from a city to a city on a day")
def search_flights(
    flights: Flights, origin: Name, to: Name, day: Day, page: Page = 1
) -> JsonObject:
    require_city(flights.cities, origin)
    require_city(flights.cities, to)
    rows: list[JsonObject] = [
        {"flight": number, "time": row.time, "price": row.price, "seats": row.seats}
        for number, row in flights.flights.items()
        if (row.origin, row.to, row.day) == (origin, to, day)
    ]
    return page_of("flights", rows, page)


@api("Route, day, time, price and seats of a flight")
def get_flight(flights: Flights, flight: Name) -> JsonObject:
    row = find_row(flights.flights, flight, "flight")
    return {
        "origin": row.origin, "to": row.to, "day": row.day, "time": row.time, "price": row.price,
        "seats": row.seats,
    }  # fmt: skip


@api("Book seats on a flight", changes=True)
def book_flight(flights: Flights, flight: Name, seats: Count) -> JsonObject:
    row = find_row(flights.flights, flight, "flight")
    if row.seats < seats:
        raise ApiError(f"only {row.seats} left on {flight}" if row.seats else "sold out")
    row.seats -= seats
    booking = flights.new_id("F")
    flights.bookings[booking] = FlightBooking(flight, seats)
    return {"booking": booking, "total": row.price * seats}


@api("Cancel a flight booking", changes=True)
def cancel_flight(flights: Flights, booking: Name) -> JsonObject:
    row = find_row(flights.bookings, booking, "booking")
    flight = flights.flights[row.flight]
    flight.seats += row.seats
    del flights.bookings[booking]
    return {"cancelled": booking, "refund": flight.price * row.seats}


@api("My flight bookings")
def list_flight_bookings(flights: Flights, page: Page = 1) -> JsonObject:
    rows: list[JsonObject] = [
        {"flight": row.flight, "booking": booking, "seats": row.seats}
        for booking, row in flights.bookings.items()
    ]
    return page_of("bookings", rows, page)
