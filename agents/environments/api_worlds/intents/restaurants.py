"""Users' intents for restaurants."""

from __future__ import annotations

import random

from loopline.agents.environments.api_worlds.domains.restaurants import EVENINGS, Restaurants
from loopline.agents.environments.api_worlds.intent import (
    Answer,
    Program,
    Slots,
    Step,
    Unsolvable,
    best_of,
    lookup,
    plan,
)
from loopline.agents.environments.api_worlds.intents.drawing import (
    a_day,
    combine_draws,
    from_values,
    from_world,
    no_city,
)
from loopline.agents.environments.api_worlds.names import CUISINES, DISHES, WEEKDAYS
from loopline.agents.environments.api_worlds.world import World

GUESTS = from_values("people", (2, 3, 4, 5, 6, 7, 8))
a_table = from_world("reservation", lambda world: world.state(Restaurants).tables)
no_table = from_values("reservation", ("T12", "T24", "T33", "T41", "T59", "T68", "T76", "T87"))


def a_kitchen(rng: random.Random, world: World) -> Slots | None:
    row = rng.choice([*world.state(Restaurants).restaurants.values()])
    return {"city": row.city, "cuisine": row.cuisine}


def a_free_table(rng: random.Random, world: World) -> Slots | None:
    restaurants, day = world.state(Restaurants).restaurants, rng.choice(WEEKDAYS)
    name = rng.choice([*restaurants])
    free = restaurants[name].free[day]
    return {"restaurant": name, "day": day, "time": rng.choice(free)} if free else None


def a_taken_table(rng: random.Random, world: World) -> Slots | None:
    restaurants, day = world.state(Restaurants).restaurants, rng.choice(WEEKDAYS)
    name, time = rng.choice([*restaurants]), rng.choice(EVENINGS)
    is_taken = time not in restaurants[name].free[day]
    return {"restaurant": name, "day": day, "time": time} if is_taken else None


def a_dish(rng: random.Random, world: World) -> Slots | None:
    restaurants = world.state(Restaurants).restaurants
    name = rng.choice([*restaurants])
    return {"restaurant": name, "dish": rng.choice([*restaurants[name].menu])}


def no_dish(rng: random.Random, world: World) -> Slots | None:
    restaurants = world.state(Restaurants).restaurants
    name = rng.choice([*restaurants])
    return {
        "restaurant": name,
        "dish": rng.choice([dish for dish in DISHES if dish not in restaurants[name].menu]),
    }


def best_rated(slots: Slots) -> Program:
    city, cuisine = slots["city"], slots["cuisine"]
    best = yield from best_of(
        "search_restaurants", "restaurants", f"I need the {cuisine} restaurants in {city}.",
        {"city": city, "cuisine": cuisine}, label="restaurant", by="rating", largest=True,
    )  # fmt: skip
    name, rating = best["restaurant"], best["rating"]
    return Answer(
        f"The best one is {name} with a rating of {rating}.", (name,),
        f"{name} with {rating} is the best.",
    )  # fmt: skip


def dish_price(slots: Slots) -> Program:
    name, dish = slots["restaurant"], slots["dish"]
    observation = yield Step(f"I need the menu of {name}.", "get_menu", {"restaurant": name})
    price = observation["menu"].get(dish)
    if price is None:
        raise Unsolvable(f"There is no {dish}.")
    return Answer(
        f"At {name} the {dish} costs {price} dollars.", (price,), f"The {dish} costs {price}."
    )


def reserve_earliest(slots: Slots) -> Program:
    name, day, people = slots["restaurant"], slots["day"], slots["people"]
    observation = yield Step(
        f"I need the free times of {name}.", "table_times", {"restaurant": name, "day": day}
    )
    if not observation["times"]:
        raise Unsolvable(f"There is no free table on {day}.")
    time = observation["times"][0]
    yield Step(
        f"The earliest time is {time}.", "reserve_table",
        {"restaurant": name, "day": day, "time": time, "people": people},
    )  # fmt: skip
    return Answer(f"You have a table at {name} on {day} at {time}.", (time,))


INTENTS = (
    plan(
        "restaurants.best",
        best_rated,
        draw=a_kitchen,
        trouble=combine_draws(no_city, from_values("cuisine", CUISINES)),
    ),
    plan("restaurants.dish", dish_price, draw=a_dish, trouble=no_dish),
    lookup(
        "restaurants.reserve",
        draw=combine_draws(a_free_table, GUESTS),
        trouble=combine_draws(a_taken_table, GUESTS),
    ),
    plan(
        "restaurants.reserve_earliest",
        reserve_earliest,
        draw=combine_draws(
            from_world("restaurant", lambda world: world.state(Restaurants).restaurants),
            a_day,
            GUESTS,
        ),
    ),
    lookup("restaurants.cancel", draw=a_table, trouble=no_table),
)
