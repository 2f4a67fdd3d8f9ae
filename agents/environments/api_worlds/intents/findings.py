"""Findings: values that the assistant must find out."""

from __future__ import annotations

import random

from loopline.agents.environments.api_worlds.domains.bank import Bank
from loopline.agents.environments.api_worlds.domains.calendar import Calendar
from loopline.agents.environments.api_worlds.domains.contacts import Contacts
from loopline.agents.environments.api_worlds.domains.flights import Flights
from loopline.agents.environments.api_worlds.domains.library import Library
from loopline.agents.environments.api_worlds.domains.parcels import Parcels
from loopline.agents.environments.api_worlds.domains.shop import Shop
from loopline.agents.environments.api_worlds.domains.sports import Sports
from loopline.agents.environments.api_worlds.intent import (
    Slots,
    Step,
    Unsolvable,
    best_of,
    find_row,
)
from loopline.agents.environments.api_worlds.intents.combinations import (
    Found,
    Search,
    finding,
)
from loopline.agents.environments.api_worlds.intents.drawing import from_values, from_world
from loopline.agents.environments.api_worlds.names import EVENTS, NO_CITIES, PEOPLE
from loopline.agents.environments.api_worlds.world import World

an_event = from_world("event", lambda world: world.state(Calendar).events)
no_event = from_world(
    "event", lambda world: [name for name in EVENTS if name not in world.state(Calendar).events]
)
a_parcel = from_world("item", lambda world: world.state(Parcels).parcels)
no_parcel = from_values("item", ("P11", "P23", "P36", "P48", "P52", "P67", "P79", "P84"))
a_team = from_world("team", lambda world: world.state(Sports).points)
a_friend = from_world("friend", lambda world: world.setting.people)
no_friend = from_world(
    "friend", lambda world: [name for name in PEOPLE if name not in world.setting.people]
)


def a_single_transfer(rng: random.Random, world: World) -> Slots | None:
    """Draw a transfer that account and amount identify."""
    rows = [(row.account, row.amount) for row in world.state(Bank).transfers.values()]
    source, sum_sent = rng.choice(rows)
    once = rows.count((source, sum_sent)) == 1
    return {"source": source, "sum_sent": sum_sent} if once else None


def warmest_day(slots: Slots) -> Search:
    city = slots["resort"]
    best = yield from best_of(
        "week_forecast", "days", f"I need the whole week in {city}.", {"city": city},
        label="day", by="high", largest=True,
    )  # fmt: skip
    return Found(best["day"], f"{best['day']} with {best['high']} is the warmest.")


def due_day(slots: Slots) -> Search:
    title = slots["book"]
    row = yield from find_row(
        "list_loans", "loans", f"I need my loan of {title}.", {}, "title", title
    )
    return Found(row["due"], f"It is due on {row['due']}.")


def bill_amount(slots: Slots) -> Search:
    bill = slots["bill"]
    observation = yield Step("I need the unpaid bills.", "list_bills", {})
    if bill not in observation["bills"]:
        raise Unsolvable(f"There is no {bill} bill.")
    return Found(observation["bills"][bill], f"{bill} is {observation['bills'][bill]}.")


def message_sender(slots: Slots) -> Search:
    row = yield from find_row(
        "list_messages", "messages", "I look for that message.", {}, "text", slots["note"]
    )
    return Found(row["sender"], f"{row['sender']} wrote it.")


def receiver(slots: Slots) -> Search:
    row = yield from find_row(
        "list_transfers", "transfers", f"I look for the transfer of {slots['sum_sent']} dollars.",
        {"account": slots["source"]}, "amount", slots["sum_sent"],
    )  # fmt: skip
    return Found(row["to"], f"{row['to']} got it.")


FINDINGS = (
    finding("parcel_day", draw=a_parcel, trouble=no_parcel),
    finding("event_day", draw=an_event, trouble=no_event),
    finding(
        "due_day",
        due_day,
        draw=from_world("book", lambda world: world.state(Library).loans),
        trouble=from_world(
            "book",
            lambda world: [
                n for n in world.state(Library).books if n not in world.state(Library).loans
            ],
        ),
    ),
    finding(
        "warmest_day",
        warmest_day,
        draw=from_world("resort", lambda world: world.setting.cities),
        trouble=from_values("resort", NO_CITIES),
    ),
    finding("match_day", draw=a_team),
    finding("friend_city", draw=a_friend, trouble=no_friend),
    finding("event_city", draw=an_event, trouble=no_event),
    finding("parcel_city", draw=a_parcel, trouble=no_parcel),
    finding("match_city", draw=a_team),
    finding(
        "product_price",
        draw=from_world("product", lambda world: world.state(Shop).products),
        trouble=from_values("product", ("purple lamp", "purple mug", "purple desk", "purple tent")),
    ),
    finding(
        "flight_price",
        draw=from_world("flight", lambda world: world.state(Flights).flights),
        trouble=from_values("flight", ("QQ11", "ZX20", "WV35", "XY77")),
    ),
    finding(
        "bill_amount", bill_amount, draw=from_world("bill", lambda world: world.state(Bank).bills)
    ),
    finding("cart_total", draw=lambda rng, world: {}),
    finding(
        "sender",
        message_sender,
        draw=from_world("note", lambda world: [note.text for note in world.state(Contacts).inbox]),
    ),
    finding("receiver", receiver, draw=a_single_transfer),
)
