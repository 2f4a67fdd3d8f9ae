"""What users leave for their assistant to find out."""

# ruff: noqa: E501 (one wording, one line)

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
    looked_up,
)
from loopline.agents.environments.api_worlds.intents.drawing import fixed, from_world
from loopline.agents.environments.api_worlds.names import EVENTS, NO_CITIES, PEOPLE
from loopline.agents.environments.api_worlds.world import World

an_event = from_world("event", lambda world: world.state(Calendar).events)
no_event = from_world(
    "event", lambda world: [name for name in EVENTS if name not in world.state(Calendar).events]
)
a_parcel = from_world("item", lambda world: world.state(Parcels).parcels)
no_parcel = fixed("item", ("P11", "P23", "P36", "P48", "P52", "P67", "P79", "P84"))
a_team = from_world("team", lambda world: world.state(Sports).points)
a_friend = from_world("friend", lambda world: world.setting.people)
no_friend = from_world(
    "friend", lambda world: [name for name in PEOPLE if name not in world.setting.people]
)


def a_single_transfer(rng: random.Random, world: World) -> Slots | None:
    """A transfer that account and amount tell apart."""
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
    finding("parcel_day", "day", "track_parcel",
            looked_up("track_parcel", "parcel=item", "arrives", "I track {item}.", "{item} arrives on {x}."), """
        the day parcel {item} arrives
        the day when parcel {item} comes
        the arrival day of parcel {item}
        the day on which I get parcel {item}
        the day of the delivery of parcel {item}
        the same day as parcel {item} arrives
        the day my parcel {item} is delivered
        the delivery day of my parcel {item}
        """, draw=a_parcel, trouble=no_parcel),
    finding("event_day", "day", "find_event",
            looked_up("find_event", "title=event", "day", "I look up {event}.", "{event} is on {x}."), """
        the day of my event {event}
        the day of {event} in my calendar
        the day when I have {event}
        the same day as {event} in my calendar
        the day for which my calendar says {event}
        the day on which {event} takes place
        the day my calendar has {event} on
        the day of the event {event}
        """, draw=an_event, trouble=no_event),
    finding("due_day", "day", "list_loans", due_day, """
        the day {book} is due
        the due day of my book {book}
        the day when {book} is due at the library
        the day on which I have to return {book}
        the day until which I can keep {book}
        the day my loan of {book} ends
        the last day of my loan of {book}
        the day {book} has to be back at the library
        """, draw=from_world("book", lambda world: world.state(Library).loans),
            trouble=from_world("book", lambda world: [n for n in world.state(Library).books if n not in world.state(Library).loans])),
    finding("warmest_day", "day", "week_forecast", warmest_day, """
        the warmest day in {resort}
        the day when it is warmest in {resort}
        the hottest day of the week in {resort}
        the day with the highest temperature in {resort}
        the warmest day that {resort} has this week
        the day {resort} is the warmest
        the day on which {resort} has its highest temperature
        the hottest day in {resort}
        """, draw=from_world("resort", lambda world: world.setting.cities), trouble=fixed("resort", NO_CITIES)),
    finding("match_day", "day", "next_match",
            looked_up("next_match", "team", "day", "I need the next match of the {team}.", "They play on {x}."), """
        the day the {team} play next
        the day of the next match of the {team}
        the day when the {team} have their next match
        the match day of the {team}
        the day on which the {team} play
        the next day that the {team} play
        the day I can see the {team} play
        the same day as the next {team} match
        """, draw=a_team),
    finding("friend_city", "city", "find_contact",
            looked_up("find_contact", "name=friend", "city", "I look up {friend}.", "{friend} lives in {x}."), """
        the city where {friend} lives
        the city in which {friend} lives
        {friend}'s city
        the home city of {friend}
        the city of my contact {friend}
        the place where {friend} lives
        the city that my contacts have for {friend}
        the city {friend} lives in
        """, draw=a_friend, trouble=no_friend),
    finding("event_city", "city", "find_event",
            looked_up("find_event", "title=event", "city", "I look up {event}.", "{event} is in {x}."), """
        the city of my event {event}
        the city where {event} takes place
        the city in which I have {event}
        the city that my calendar has for {event}
        the place of {event} in my calendar
        the city of the event {event}
        the city I have to be in for {event}
        the city where my event {event} is
        """, draw=an_event, trouble=no_event),
    finding("parcel_city", "city", "track_parcel",
            looked_up("track_parcel", "parcel=item", "city", "I track {item}.", "{item} is in {x}."), """
        the city where parcel {item} is
        the city in which my parcel {item} is now
        the present city of parcel {item}
        the place of parcel {item}
        the city that parcel {item} has reached
        the city my parcel {item} is in
        the city where my parcel {item} lies
        the current city of the parcel {item}
        """, draw=a_parcel, trouble=no_parcel),
    finding("match_city", "city", "next_match",
            looked_up("next_match", "team", "city", "I need the next match of the {team}.", "They play in {x}."), """
        the city where the {team} play next
        the city of the next match of the {team}
        the city in which the {team} have their next match
        the place of the next {team} match
        the city the {team} play in next
        the next city in which the {team} play
        the city where I can see the {team} play
        the match city of the {team}
        """, draw=a_team),
    finding("product_price", "money", "get_product",
            looked_up("get_product", "product", "price", "I look up the {product}.", "The {product} costs {x}."), """
        the price of the {product}
        what the {product} costs
        the price of the {product} in the shop
        what the shop takes for the {product}
        as much as the {product} costs
        the cost of the {product}
        the amount that the {product} costs
        what I would pay for the {product}
        """, draw=from_world("product", lambda world: world.state(Shop).products),
            trouble=fixed("product", ("purple lamp", "purple mug", "purple desk", "purple tent"))),
    finding("flight_price", "money", "get_flight",
            looked_up("get_flight", "flight", "price", "I look up flight {flight}.", "{flight} costs {x}."), """
        the price of flight {flight}
        what flight {flight} costs
        the price of a seat on flight {flight}
        what a seat on {flight} costs
        as much as flight {flight} costs
        the fare of flight {flight}
        the amount that flight {flight} costs
        what I would pay for flight {flight}
        """, draw=from_world("flight", lambda world: world.state(Flights).flights),
            trouble=fixed("flight", ("QQ11", "ZX20", "WV35", "XY77"))),
    finding("bill_amount", "money", "list_bills", bill_amount, """
        the amount of my {bill} bill
        what my {bill} bill is
        the amount that I owe for {bill}
        as much as my {bill} bill is
        the sum on my {bill} bill
        what I owe for {bill}
        the amount of the unpaid {bill} bill
        what I have to pay for {bill}
        """, draw=from_world("bill", lambda world: world.state(Bank).bills)),
    finding("cart_total", "money", "view_cart",
            looked_up("view_cart", "", "total", "I look into the cart.", "The cart is {x}."), """
        the total of my cart
        what my cart costs
        the price of all in my cart
        the sum of my cart
        as much as my cart costs
        the total price of what is in my cart
        the amount that my cart comes to
        the value of my cart
        """, draw=lambda rng, world: {}),
    finding("sender", "person", "list_messages", message_sender, """
        the person who wrote: {note}
        whoever sent me the message: {note}
        the sender of the message: {note}
        the person whose message is: {note}
        the one who sent me: {note}
        the person that wrote to me: {note}
        the friend who wrote: {note}
        the one whose message says: {note}
        """, draw=from_world("note", lambda world: [note.text for note in world.state(Contacts).inbox])),
    finding("receiver", "person", "list_transfers", receiver, """
        the person who got {sum_sent} dollars from {source}
        whoever received {sum_sent} dollars from my {source} account
        the person to whom I sent {sum_sent} dollars from {source}
        the one who got {sum_sent} dollars out of {source}
        the receiver of the {sum_sent} dollars from {source}
        the person that I paid {sum_sent} dollars from {source}
        the one to whom {sum_sent} dollars went from {source}
        the person {source} sent {sum_sent} dollars to
        """, draw=a_single_transfer),
)  # fmt: skip
