"""What users want of their parcels."""

# ruff: noqa: E501 (one wording, one line)

from __future__ import annotations

import random

from loopline.agents.environments.api_worlds.domains.parcels import Parcels
from loopline.agents.environments.api_worlds.intent import (
    Answer,
    Program,
    Rows,
    Slots,
    Thought,
    counted,
    lookup,
    pages,
    plan,
    quoted,
)
from loopline.agents.environments.api_worlds.intents.drawing import a_day, both, fixed, from_world
from loopline.agents.environments.api_worlds.names import CITIES, NO_CITIES
from loopline.agents.environments.api_worlds.world import World

KG = fixed("kg", (2, 3, 4, 5, 6, 7, 8, 9))
a_parcel = from_world("parcel", lambda world: world.state(Parcels).parcels)
an_open_parcel = from_world(
    "parcel",
    lambda world: [
        n for n, row in world.state(Parcels).parcels.items() if row.status == "in transit"
    ],
)
a_delivered_parcel = from_world(
    "parcel",
    lambda world: [
        n for n, row in world.state(Parcels).parcels.items() if row.status == "delivered"
    ],
)
a_target = from_world("to", lambda world: world.setting.cities)
a_parcel_city = from_world(
    "city", lambda world: sorted({row.city for row in world.state(Parcels).parcels.values()})
)


def no_parcel(rng: random.Random, world: World) -> Slots:
    return {"parcel": f"P{rng.randint(10, 99)}"}


def no_target(rng: random.Random, world: World) -> Slots:
    strange = [*NO_CITIES, *(city for city in CITIES if city not in world.setting.cities)]
    return {"to": rng.choice(strange)}


def count_in_city(slots: Slots) -> Program:
    city = slots["city"]

    def there(rows: Rows) -> int:
        return sum(row["city"] == city for row in rows)

    def read(rows: Rows, old: int) -> Thought:
        told = (f"{quoted(rows[new])} {there(rows[: new + 1])}." for new in range(old, len(rows)))
        return Thought(" ".join(told) or "Nothing.")

    rows = yield from pages(
        "list_parcels", "parcels", "I need all my parcels.", {}, read,
        lambda rows: f"So far {there(rows)} in {city}.",
    )  # fmt: skip
    count = there(rows)
    return Answer(
        f"You have {counted(count, 'parcel')} in {city}.", (count,), f"In all {count} in {city}."
    )


INTENTS = (
    lookup("parcels.where", "track_parcel", "parcel", "I track {parcel}.", "Parcel {parcel} is in {city}.", """
        Where is parcel {parcel}?
        In which city is my parcel {parcel}?
        Tell me where parcel {parcel} is now.
        Find out where the parcel {parcel} is.
        Track parcel {parcel}: in which city is it?
        I wait for parcel {parcel}. Where is it?
        {parcel}: in which city is this parcel?
        Check the place of my parcel {parcel}.
        """, draw=a_parcel, facts="city", trouble=no_parcel),
    lookup("parcels.arrives", "track_parcel", "parcel", "I track {parcel}.",
           "Parcel {parcel} arrives on {arrives}.", """
        When does parcel {parcel} arrive?
        On which day do I get parcel {parcel}?
        Tell me when my parcel {parcel} arrives.
        Find out the arrival day of parcel {parcel}.
        I wait for parcel {parcel}. When does it come?
        Track parcel {parcel}: on which day does it arrive?
        {parcel}: when will this parcel be here?
        Check when parcel {parcel} comes.
        Which day is parcel {parcel} going to be delivered?
        """, draw=an_open_parcel, facts="arrives", trouble=no_parcel),
    plan("parcels.count", "list_parcels", count_in_city, """
        How many of my parcels are in {city}?
        Count my parcels in {city}.
        Tell me how many parcels I have in {city}.
        Find out how many of my parcels are in {city} now.
        What is the number of my parcels in {city}?
        {city}: how many of my parcels are there?
        Look at all my parcels. How many are in {city}?
        Check how many parcels of mine are in {city}.
        """, draw=a_parcel_city),
    lookup("parcels.change", "change_delivery", "parcel day", "I change it to {day}.",
           "Parcel {parcel} now arrives on {day}.", """
        Have parcel {parcel} delivered on {day}.
        Change the delivery of parcel {parcel} to {day}.
        I am not at home. Let parcel {parcel} come on {day}.
        I want parcel {parcel} on {day}.
        Move the delivery of {parcel} to {day}.
        Deliver parcel {parcel} on {day} instead.
        Parcel {parcel} should arrive on {day}. Change it.
        Set the delivery day of parcel {parcel} to {day}.
        """, draw=both(an_open_parcel, a_day), trouble=both(a_delivered_parcel, a_day)),
    lookup("parcels.quote", "quote_parcel", "to kg", "I need the price.",
           "A parcel of {kg} kg to {to} costs {price} dollars.", """
        What does a parcel of {kg} kg to {to} cost?
        How much is it to send {kg} kg to {to}?
        Tell me the price of a {kg} kg parcel to {to}.
        Find out what it costs to send a parcel of {kg} kg to {to}.
        I have a parcel of {kg} kg for {to}. What would it cost?
        {kg} kg to {to}: how much is the parcel?
        Check the price for a parcel to {to} with {kg} kg.
        How many dollars does a {kg} kg parcel to {to} cost?
        """, draw=both(a_target, KG), facts="price", trouble=both(no_target, KG)),
    lookup("parcels.send", "send_parcel", "to kg", "I send it to {to}.",
           "Parcel {parcel} is on its way and costs {price} dollars.", """
        Send a parcel of {kg} kg to {to}.
        I want to send {kg} kg to {to}. Send the parcel.
        Ship a parcel of {kg} kg to {to}.
        Post a {kg} kg parcel to {to}.
        A parcel with {kg} kg has to go to {to}. Send it.
        Mail a parcel to {to}, {kg} kg.
        {kg} kg to {to}: send the parcel.
        Get a parcel of {kg} kg on its way to {to}.
        """, draw=both(a_target, KG), trouble=both(no_target, KG)),
)  # fmt: skip
