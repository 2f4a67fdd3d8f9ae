"""What users want to be done with something that has to be found out first."""

# ruff: noqa: E501 (one wording, one line)

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
    counted,
    numbered,
    single_call,
)
from loopline.agents.environments.api_worlds.intents.combinations import errand
from loopline.agents.environments.api_worlds.intents.drawing import one
from loopline.agents.environments.api_worlds.names import EVENTS, MESSAGES, TASKS, WEEKDAYS
from loopline.agents.environments.api_worlds.world import World


def a_place(rng: random.Random, world: World, value: str) -> Slots:
    return {"place": rng.choice(world.setting.cities)}


def a_new_event(rng: random.Random, world: World, value: str) -> Slots | None:
    calendar = world.state(Calendar)
    time = one(rng, calendar.free(value))
    title = rng.choice([name for name in EVENTS if name not in calendar.events])
    return time and {"title": title, "time": time}


def a_new_task(rng: random.Random, world: World, value: str) -> Slots:
    there = world.state(Tasks).tasks
    return {"task": rng.choice([name for name in TASKS if name not in there])}


def no_slots(rng: random.Random, world: World, value: str) -> Slots:
    return {}


def an_open_parcel(rng: random.Random, world: World, value: str) -> Slots | None:
    rows = world.state(Parcels).parcels.items()
    parcel = one(rng, [n for n, row in rows if row.status == "in transit" and row.arrives != value])
    return parcel and {"parcel": parcel}


def a_route(rng: random.Random, world: World, value: str) -> Slots | None:
    row = one(rng, [row for row in world.state(Flights).flights.values() if row.day == value])
    return row and {"origin": row.origin, "to": row.to}


def a_table(rng: random.Random, world: World, value: str) -> Slots | None:
    name, row = rng.choice([*world.state(Restaurants).restaurants.items()])
    time = one(rng, row.free[value])
    return time and {"restaurant": name, "time": time, "people": rng.randint(2, 8)}


def a_day(rng: random.Random, world: World, value: str) -> Slots:
    return {"day": rng.choice(WEEKDAYS)}


def a_start(rng: random.Random, world: World, value: str) -> Slots:
    return {"origin": rng.choice([city for city in world.setting.cities if city != value])}


def a_weight(rng: random.Random, world: World, value: str) -> Slots:
    return {"kg": rng.randint(2, 9)}


def hotels_there(rng: random.Random, world: World, value: str) -> Slots | None:
    there = any(row.city == value for row in world.state(Hotels).hotels.values())
    return {} if there else None


def a_target(rng: random.Random, world: World, value: int) -> Slots:
    codes = [code for code in world.state(Currency).values if code != "USD"]
    return {"target": rng.choice(codes), "usd": "USD"}


def a_payer(rng: random.Random, world: World, value: int) -> Slots | None:
    rich = [name for name, left in world.state(Bank).balances.items() if left >= value]
    payer = one(rng, rich)
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
    yield numbered(row["title"] for row in observation["events"])
    count = len(observation["events"])
    told = counted(count, "event")
    return Answer(f"You have {told} on {day}.", (count,), f"I count {told} on {day}.")


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
    errand("forecast_on", "day", "get_forecast", single_call(
        "get_forecast", "city=place day=x", "{told} I need the forecast of {place}.",
        "On {x} it will be {sky} in {place}.", "sky"), """
        What will the weather in {place} be like on {x}?
        Tell me the weather in {place} on {x}.
        How is the weather in {place} on {x}?
        Find out what the weather is like in {place} on {x}.
        What weather does {place} get on {x}?
        I need the weather of {place} for {x}.
        Check the weather in {place} on {x}.
        What kind of weather is there in {place} on {x}?
        """, draw=a_place),
    errand("add_event_on", "day", "add_event", single_call(
        "add_event", "title day=x time", "{told} I add {title} at {time}.",
        "{title} is in your calendar on {x} at {time}.", ""), """
        Add {title} at {time} to my calendar on {x}.
        Put {title} at {time} into my calendar on {x}.
        Schedule {title} at {time} on {x}.
        Plan {title} at {time} for {x}.
        Create an event {title} at {time} on {x}.
        I need {title} at {time} in my calendar on {x}.
        Enter {title} in my calendar at {time} on {x}.
        Make an entry {title} at {time} on {x}.
        """, draw=a_new_event),
    errand("add_task_on", "day", "add_task", single_call(
        "add_task", "task day=x", "{told} I add the task.", "I added the task for {x}.", ""), """
        Remind me to {task} on {x}.
        Add a task to {task} on {x}.
        Put a task to {task} on my to-do list for {x}.
        I have to {task} on {x}. Add the task.
        Make a task to {task} on {x}.
        Note on my to-do list that I have to {task} on {x}.
        I must {task} on {x}. Remind me.
        Create a task to {task} for {x}.
        """, draw=a_new_task),
    errand("count_events_on", "day", "list_events", count_events, """
        How many events do I have on {x}?
        Count my events on {x}.
        Tell me how many events I have on {x}.
        Find out how many events there are on {x}.
        How many entries does my calendar have on {x}?
        What is the number of my events on {x}?
        Look how many events my calendar has on {x}.
        I want to know how many events I have on {x}.
        """, draw=no_slots),
    errand("deliver_on", "day", "change_delivery", single_call(
        "change_delivery", "parcel day=x", "{told} I change the delivery.",
        "Parcel {parcel} now arrives on {x}.", ""), """
        Have {parcel} delivered on {x}.
        Change the delivery of {parcel} to {x}.
        Let {parcel} come on {x}.
        Move the delivery of {parcel} to {x}.
        Set the delivery of {parcel} to {x}.
        I want {parcel} to arrive on {x}. Change the delivery.
        The delivery of {parcel} should be on {x}.
        Deliver {parcel} on {x}.
        """, draw=an_open_parcel),
    errand("fly_on", "day", "search_flights", cheapest_flight, """
        Which flight from {origin} to {to} is the cheapest on {x}?
        Find the cheapest flight from {origin} to {to} on {x}.
        What is the cheapest flight from {origin} to {to} on {x}?
        Tell me the cheapest flight from {origin} to {to} on {x}.
        I fly from {origin} to {to} on {x}. Which flight is the cheapest?
        Look for the cheapest flight from {origin} to {to} on {x}.
        Which flight from {origin} to {to} costs the least on {x}?
        I want the cheapest flight from {origin} to {to} on {x}. Which one is it?
        """, draw=a_route),
    errand("table_on", "day", "reserve_table", single_call(
        "reserve_table", "restaurant day=x time people", "{told} I reserve the table.",
        "You have a table at {restaurant} on {x} at {time}.", ""), """
        Reserve a table for {people} at {restaurant} at {time} on {x}.
        Book a table for {people} people at {restaurant} at {time} on {x}.
        I need a table for {people} at {restaurant} at {time} on {x}.
        Get us a table at {restaurant} for {people} at {time} on {x}.
        Make a reservation for {people} at {restaurant} at {time} on {x}.
        We are {people} and need a table at {restaurant} at {time} on {x}.
        Take a table at {restaurant} at {time} for {people} people on {x}.
        Have a table for {people} reserved at {restaurant} at {time} on {x}.
        """, draw=a_table),
    errand("forecast_in", "city", "get_forecast", single_call(
        "get_forecast", "city=x day", "{told} I need the forecast there.",
        "On {day} it will be {sky} in {x}.", "sky"), """
        What will the weather be like on {day} in {x}?
        Tell me the weather on {day} in {x}.
        How is the weather on {day} in {x}?
        Find out what the weather is like on {day} in {x}.
        I need the weather of {day} in {x}.
        Check the weather on {day} in {x}.
        What kind of weather is there on {day} in {x}?
        On {day}, what weather is expected in {x}?
        """, draw=a_day),
    errand("sunset_in", "city", "sun_times", single_call(
        "sun_times", "city=x", "{told} I need the sun times there.",
        "The sun sets at {sunset} in {x}.", "sunset"), """
        When does the sun set in {x}?
        At what time is sunset in {x}?
        Tell me the time of sunset in {x}.
        Find out when the sun sets in {x}.
        What time does the sun go down in {x}?
        Check the time of sunset in {x}.
        I want to know when the sun sets in {x}.
        Look up when sunset is in {x}.
        """, draw=no_slots),
    errand("distance_to", "city", "get_distance", single_call(
        "get_distance", "origin to=x", "{told} I need the distance.",
        "It is {km} km from {origin} to {x}.", "km"), """
        How far is it from {origin} to {x}?
        What is the distance from {origin} to {x}?
        Tell me how many km it is from {origin} to {x}.
        Find the distance from {origin} to {x}.
        How many kilometers is it from {origin} to {x}?
        Check how far it is from {origin} to {x}.
        I go from {origin} to {x}. How far is that?
        Look up the distance between {origin} and {x}.
        """, draw=a_start),
    errand("send_parcel_to", "city", "send_parcel", single_call(
        "send_parcel", "to=x kg", "{told} I send the parcel there.",
        "Parcel {parcel} to {x} costs {price} dollars.", ""), """
        Send a parcel of {kg} kg to {x}.
        Ship a parcel of {kg} kg to {x}.
        Post a {kg} kg parcel to {x}.
        Mail a parcel of {kg} kg to {x}.
        I want to send {kg} kg to {x}. Send the parcel.
        Get a {kg} kg parcel on its way to {x}.
        A parcel of {kg} kg must go to {x}. Send it.
        Have a parcel of {kg} kg sent to {x}.
        """, draw=a_weight),
    errand("quote_parcel_to", "city", "quote_parcel", single_call(
        "quote_parcel", "to=x kg", "{told} I need the price.",
        "A parcel of {kg} kg to {x} costs {price} dollars.", "price"), """
        What does a parcel of {kg} kg to {x} cost?
        How much is it to send {kg} kg to {x}?
        Tell me the price of a {kg} kg parcel to {x}.
        Find out what a parcel of {kg} kg to {x} costs.
        How many dollars does a {kg} kg parcel to {x} cost?
        Check the price of a parcel of {kg} kg to {x}.
        I have a parcel of {kg} kg for {x}. What would it cost?
        Look up how much a parcel of {kg} kg to {x} is.
        """, draw=a_weight),
    errand("hotel_in", "city", "search_hotels", cheapest_hotel, """
        What is the cheapest hotel in {x}?
        Find the cheapest hotel in {x}.
        Which hotel is the cheapest in {x}?
        Tell me the cheapest hotel in {x}.
        I need the cheapest hotel in {x}. Which one is it?
        Look for the cheapest hotel in {x}.
        Which hotel costs the least in {x}?
        Show me the hotel with the lowest price in {x}.
        """, draw=hotels_there),
    errand("convert", "money", "convert_currency", single_call(
        "convert_currency", "amount=x source=usd target", "{told} I convert that.",
        "That is {result} {target}.", "result"), """
        How much is {x} in {target}, converted from {usd}?
        Convert {x} from {usd} to {target}.
        Tell me {x} in {target}, converted from {usd}.
        I want to know {x} in {target} instead of {usd}.
        Find out {x} in {target}, with the exchange from {usd}.
        Change {x} from {usd} into {target}: how much is it?
        Give me {x}, converted from {usd} to {target}.
        From {usd} to {target}: convert {x}.
        """, draw=a_target),
    errand("send_money", "money", "transfer_money", single_call(
        "transfer_money", "account=payer to=person amount=x", "{told} I send that to {person}.",
        "I sent {x} dollars to {person}.", ""), """
        Send {person} {x}, from my {payer} account.
        Transfer {x} from {payer} to {person}.
        Pay {person} {x} out of {payer}.
        Give {person} {x}, from my {payer} account.
        From my {payer} account, send {person} {x}.
        {person} should get {x} from {payer}. Send it.
        I owe {person} {x}. Send it from {payer}.
        Wire {person} {x}, from {payer}.
        """, draw=a_payer),
    errand("message_to", "person", "send_message", single_call(
        "send_message", "to=x text", "{told} I send the message.", "I sent your message to {x}.", ""), """
        Send the message '{text}' to {x}
        Write '{text}' to {x}
        Text '{text}' to {x}
        I want to answer '{text}' to {x}
        Please send '{text}' to {x}
        The message '{text}' should go to {x}
        Could you write '{text}' to {x}
        Give this message, '{text}', to {x}
        """, draw=a_text),
    errand("phone_of", "person", "find_contact", single_call(
        "find_contact", "name=x", "{told} I need the number.", "The number of {x} is {phone}.", "phone"), """
        What is the phone number of {x}
        Tell me the number of {x}
        Find the phone number of {x}
        I want to call {x}
        Look up the phone number of {x}
        Give me the number of {x}
        I need the phone number of {x}
        Which number has {x}
        """, draw=no_slots),
    errand("money_to", "person", "transfer_money", single_call(
        "transfer_money", "account to=x amount", "{told} I send the money.",
        "I sent {amount} dollars to {x}.", ""), """
        Send {amount} dollars from my {account} account to {x}
        Transfer {amount} dollars from {account} to {x}
        Pay {amount} dollars out of {account} to {x}
        I want to send {amount} dollars from {account} to {x}
        Give {amount} dollars from {account} to {x}
        Please send {amount} dollars out of my {account} account to {x}
        From {account}, send {amount} dollars to {x}
        Wire {amount} dollars from {account} to {x}
        """, draw=an_amount),
)  # fmt: skip
