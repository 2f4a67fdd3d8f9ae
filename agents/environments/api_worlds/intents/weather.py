"""What users want to know about the weather."""

from __future__ import annotations

import random

from loopline.agents.environments.api_worlds.domains.weather import Weather
from loopline.agents.environments.api_worlds.intent import (
    Answer,
    Program,
    Slots,
    Step,
    best_of,
    lookup,
    plan,
    two_weighed,
)
from loopline.agents.environments.api_worlds.intents.drawing import a_city, a_day, both, no_city
from loopline.agents.environments.api_worlds.names import WEEKDAYS
from loopline.agents.environments.api_worlds.world import World


def two_places(rng: random.Random, world: World) -> Slots | None:
    city, other = rng.sample(world.setting.cities, 2)
    day, days = rng.choice(WEEKDAYS), world.state(Weather).days
    if days[city][day].high == days[other][day].high:
        return None
    return {"city": city, "other": other, "day": day}


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
    city, other, day = slots["city"], slots["other"], slots["day"]
    here = yield Step(f"First I look at {city}.", "get_forecast", {"city": city, "day": day})
    there = yield Step(
        f"{city} has {here['high']} degrees. Now {other}.",
        "get_forecast", {"city": other, "day": day},
    )  # fmt: skip
    low, high = sorted((here["high"], there["high"]))
    best, cooler = (city, other) if here["high"] == high else (other, city)
    yield two_weighed((city, here["high"]), (other, there["high"]), largest=True)
    return Answer(
        f"It is warmer in {best}, with {high} degrees.", (high, best),
        f"{best} is warmer.", (cooler, low),
    )  # fmt: skip


INTENTS = (
    lookup("weather.sky", "get_forecast", "city day", "I need the forecast of {city}.",
           "On {day} it will be {sky} in {city}.", """
        What will the weather in {city} be like on {day}?
        How is the weather in {city} on {day}?
        Tell me the weather in {city} on {day}.
        Find out what the weather in {city} is like on {day}.
        On {day} I am in {city}. What weather do I have to expect?
        What kind of weather does {city} get on {day}?
        {city}, {day}: what is the weather?
        Check the weather of {city} for {day}.
        I need the weather for {day} in {city}.
        Do I need an umbrella in {city} on {day}? Tell me the weather.
        """, draw=both(a_city, a_day), facts="sky", trouble=both(no_city, a_day)),
    lookup("weather.high", "get_forecast", "city day", "I need the forecast of {city}.",
           "The high in {city} on {day} is {high} degrees.", """
        How warm will it get in {city} on {day}?
        What is the highest temperature in {city} on {day}?
        Tell me the high in {city} on {day}.
        Find the maximum temperature of {city} on {day}.
        On {day}, how many degrees does it get in {city}?
        How hot is it going to be in {city} on {day}?
        {city}, {day}: what is the high?
        Check how warm it gets on {day} in {city}.
        What temperature does {city} reach on {day}?
        """, draw=both(a_city, a_day), facts="high", trouble=both(no_city, a_day)),
    plan("weather.warmest", "week_forecast", warmest, """
        Which day is the warmest in {city}?
        What is the warmest day of the week in {city}?
        On which day does {city} have the highest temperature?
        Tell me the hottest day in {city}.
        Find the day of this week on which it is warmest in {city}.
        When is it the warmest in {city} this week?
        {city}: which day is the hottest?
        Look for the warmest day in {city}.
        I want to go to {city} on the warmest day. Which one is it?
        """, draw=a_city, trouble=no_city),
    plan("weather.warmer", "get_forecast", warmer, """
        Where is it warmer on {day}, in {city} or in {other}, and how warm is it?
        Is it warmer in {city} or in {other} on {day}? Tell me the high there.
        Compare {city} and {other} on {day}: which is warmer, and how warm does it get?
        On {day}, which city has the higher temperature, {city} or {other}, and what is it?
        Tell me which of {city} and {other} is warmer on {day}, and its high.
        Find out whether {city} or {other} is warmer on {day}, with the temperature.
        Which is hotter on {day}: {city} or {other}? Give me the high as well.
        {city} or {other}, where is it hotter on {day}, and how hot?
        """, draw=two_places),
    lookup("weather.sunset", "sun_times", "city", "I need the sun times of {city}.",
           "The sun sets at {sunset} in {city}.", """
        When does the sun set in {city}?
        At what time is sunset in {city}?
        Tell me the time of sunset in {city}.
        What time does the sun go down in {city}?
        Find out when the sun sets in {city}.
        {city}: when is sunset?
        Until when is there sun in {city}?
        Check the sunset time of {city}.
        I need the sunset time for {city}.
        """, draw=a_city, facts="sunset", trouble=no_city),
    lookup("weather.sunrise", "sun_times", "city", "I need the sun times of {city}.",
           "The sun rises at {sunrise} in {city}.", """
        When does the sun rise in {city}?
        At what time is sunrise in {city}?
        Tell me the time of sunrise in {city}.
        What time does the sun come up in {city}?
        Find out when the sun rises in {city}.
        {city}: when is sunrise?
        How early does the sun come up in {city}?
        Check the sunrise time of {city}.
        """, draw=a_city, facts="sunrise"),
    lookup("weather.air", "air_quality", "city", "I need the air quality of {city}.",
           "The air quality index of {city} is {index}.", """
        What is the air quality in {city}?
        How good is the air in {city}?
        Tell me the air quality index of {city}.
        Find the air quality of {city}.
        {city}: what is the air quality index?
        Check the air in {city}.
        How clean is the air of {city}?
        I want to know the air quality of {city}.
        """, draw=a_city, facts="index"),
)  # fmt: skip
