"""Errands: uses of a value that must be found out first."""

from __future__ import annotations

import random

from loopline.agents.environments.api_worlds.domains.bank import Bank
from loopline.agents.environments.api_worlds.domains.calendar import Calendar
from loopline.agents.environments.api_worlds.domains.currency import Currency
from loopline.agents.environments.api_worlds.domains.flights import Flights
from loopline.agents.environments.api_worlds.domains.hotels import Hotels
from loopline.agents.environments.api_worlds.domains.parcels import Parcels
from loopline.agents.environments.api_worlds.domains.restaurants import Restaurants
from loopline.agents.environments.api_worlds.domains.tasks import Tasks
from loopline.agents.environments.api_worlds.intent import (
    Answer,
    Program,
    Slots,
    Step,
    best_of,
    number_names,
    pluralized_count,
)
from loopline.agents.environments.api_worlds.intents.combinations import errand
from loopline.agents.environments.api_worlds.intents.drawing import choose_row
from loopline.agents.environments.api_worlds.names import EVENTS, MESSAGES, TASKS, WEEKDAYS
from loopline.agents.environments.api_worlds.world import World


def a_place(rng: random.Random, world: World, value: str) -> Slots:
    return {"place": rng.choice(world.setting.cities)}


def a_new_event(rng: random.Random, world: World, value: str) -> Slots | None:
    calendar = world.state(Calendar)
    time = choose_row(rng, calendar.free(value))
    title = rng.choice([name for name in EVENTS if name not in calendar.events])
    return time and {"title": title, "time": time}


def a_new_task(rng: random.Random, world: World, value: str) -> Slots:
    there = world.state(Tasks).tasks
    return {"task": rng.choice([name for name in TASKS if name not in there])}


def no_slots(rng: random.Random, world: World, value: str) -> Slots:
    return {}


def an_open_parcel(rng: random.Random, world: World, value: str) -> Slots | None:
    rows = world.state(Parcels).parcels.items()
    parcel = choose_row(
        rng, [n for n, row in rows if row.status == "in transit" and row.arrives != value]
    )
    return parcel and {"parcel": parcel}


def a_route(rng: random.Random, world: World, value: str) -> Slots | None:
    row = choose_row(
        rng, [row for row in world.state(Flights).flights.values() if row.day == value]
    )
    return row and {"origin": row.origin, "to": row.to}


def a_table(rng: random.Random, world: World, value: str) -> Slots | None:
    name, row = rng.choice([*world.state(Restaurants).restaurants.items()])
    time = choose_row(rng, row.free[value])
    return time and {"restaurant": name, "time": time, "people": rng.randint(2, 8)}


def a_day(rng: random.Random, world: World, value: str) -> Slots:
    return {"day": rng.choice(WEEKDAYS)}


def a_start(rng: random.Random, world: World, value: str) -> Slots:
    return {"origin": rng.choice([city for city in world.setting.cities if city != value])}


def a_weight(rng: random.Random, world: World, value: str) -> Slots:
    return {"kg": rng.randint(2, 9)}


def hotels_in_city(rng: random.Random, world: World, value: str) -> Slots | None:
    there = any(row.city == value for row in world.state(Hotels).hotels.values())
    return {} if there else None


def a_target(rng: random.Random, world: World, value: int) -> Slots:
    codes = [code for code in world.state(Currency).values if code != "USD"]
    return {"target": rng.choice(codes), "usd": "USD"}


def a_payer(rng: random.Random, world: World, value: int) -> Slots | None:
    rich = [name for name, balance in world.state(Bank).balances.items() if balance >= value]
    payer = choose_row(rng, rich)
    return payer and {"payer": payer, "person": rng.choice(world.setting.people)}


def a_text(rng: random.Random, world: World, value: str) -> Slots:
    return {"text": rng.choice(MESSAGES)}


def an_amount(rng: random.Random, world: World, value: str) -> Slots:
    account, balance = rng.choice([*world.state(Bank).balances.items()])
    return {"account": account, "amount": rng.randint(5, min(balance, 400))}


def count_events(slots: Slots) -> Program:
    day = slots["x"]
    observation = yield Step(
        f"{slots['told']} I need the events of that day.", "list_events", {"day": day}
    )
    yield number_names(row["title"] for row in observation["events"])
    count = len(observation["events"])
    count_phrase = pluralized_count(count, "event")
    return Answer(
        f"You have {count_phrase} on {day}.", (count,), f"I count {count_phrase} on {day}."
    )


def cheapest_flight(slots: Slots) -> Program:
    arguments = {"origin": slots["origin"], "to": slots["to"], "day": slots["x"]}
    best = yield from best_of(
        "search_flights", "flights", f"{slots['told']} I need the flights on that day.",
        {**arguments}, label="flight", by="price",
    )  # fmt: skip
    flight, price = best["flight"], best["price"]
    return Answer(
        f"The cheapest flight on {slots['x']} is {flight} for {price} dollars.", (flight,),
        f"{flight} with {price} is the cheapest.",
    )  # fmt: skip


def cheapest_hotel(slots: Slots) -> Program:
    best = yield from best_of(
        "search_hotels", "hotels", f"{slots['told']} I need the hotels there.",
        {"city": slots["x"]}, label="hotel", by="price",
    )  # fmt: skip
    hotel, price = best["hotel"], best["price"]
    return Answer(
        f"The cheapest hotel in {slots['x']} is {hotel} for {price} dollars.", (hotel,),
        f"{hotel} with {price} is the cheapest.",
    )  # fmt: skip


ERRANDS = (
    errand("forecast_on", draw=a_place),
    errand("add_event_on", draw=a_new_event),
    errand("add_task_on", draw=a_new_task),
    errand("count_events_on", count_events, draw=no_slots),
    errand("deliver_on", draw=an_open_parcel),
    errand("fly_on", cheapest_flight, draw=a_route),
    errand("table_on", draw=a_table),
    errand("forecast_in", draw=a_day),
    errand("sunset_in", draw=no_slots),
    errand("distance_to", draw=a_start),
    errand("send_parcel_to", draw=a_weight),
    errand("quote_parcel_to", draw=a_weight),
    errand("hotel_in", cheapest_hotel, draw=hotels_in_city),
    errand("convert", draw=a_target),
    errand("send_money", draw=a_payer),
    errand("message_to", draw=a_text),
    errand("phone_of", draw=no_slots),
    errand("money_to", draw=an_amount),
)
