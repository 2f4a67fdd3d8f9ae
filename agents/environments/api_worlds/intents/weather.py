"""Users' intents for the weather."""

from __future__ import annotations

import random

from loopline.agents.environments.api_worlds.domains.weather import Weather
from loopline.agents.environments.api_worlds.intent import (
    Answer,
    Program,
    Slots,
    Step,
    best_of,
    compare_two,
    lookup,
    plan,
)
from loopline.agents.environments.api_worlds.intents.drawing import (
    a_city,
    a_day,
    combine_draws,
    no_city,
)
from loopline.agents.environments.api_worlds.names import WEEKDAYS
from loopline.agents.environments.api_worlds.world import World


def two_places(rng: random.Random, world: World) -> Slots | None:
    city, other_city = rng.sample(world.setting.cities, 2)
    day, days = rng.choice(WEEKDAYS), world.state(Weather).days
    if days[city][day].high == days[other_city][day].high:
        return None
    return {"city": city, "other": other_city, "day": day}


def warmest(slots: Slots) -> Program:
    city = slots["city"]
    best = yield from best_of(
        "week_forecast", "days", f"I need the whole week in {city}.", {"city": city},
        label="day", by="high", largest=True,
    )  # fmt: skip
    return Answer(
        f"The warmest day in {city} is {best['day']}.", (best["day"],),
        f"{best['day']} with {best['high']} is the warmest.",
    )  # fmt: skip


def warmer(slots: Slots) -> Program:
    city, other_city, day = slots["city"], slots["other"], slots["day"]
    here = yield Step(f"First I look at {city}.", "get_forecast", {"city": city, "day": day})
    there = yield Step(
        f"{city} has {here['high']} degrees. Now {other_city}.",
        "get_forecast", {"city": other_city, "day": day},
    )  # fmt: skip
    low, high = sorted((here["high"], there["high"]))
    best, cooler = (city, other_city) if here["high"] == high else (other_city, city)
    yield compare_two((city, here["high"]), (other_city, there["high"]), largest=True)
    return Answer(
        f"It is warmer in {best}, with {high} degrees.", (high, best),
        f"{best} is warmer.", (cooler, low),
    )  # fmt: skip


INTENTS = (
    lookup("weather.sky", draw=combine_draws(a_city, a_day), trouble=combine_draws(no_city, a_day)),
    lookup(
        "weather.high", draw=combine_draws(a_city, a_day), trouble=combine_draws(no_city, a_day)
    ),
    plan("weather.warmest", warmest, draw=a_city, trouble=no_city),
    plan("weather.warmer", warmer, draw=two_places),
    lookup("weather.sunset", draw=a_city, trouble=no_city),
    lookup("weather.sunrise", draw=a_city),
    lookup("weather.air", draw=a_city),
)
