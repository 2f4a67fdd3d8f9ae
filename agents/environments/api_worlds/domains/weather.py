"""The weather of one week in every city. Nothing here can be changed."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import ClassVar, Self

from loopline.agents.environments.api_worlds.api import (
    Day,
    Name,
    Page,
    Setting,
    State,
    api,
    page_of,
    require_city,
)
from loopline.agents.environments.api_worlds.names import SKIES, WEEKDAYS
from loopline.agents.records import JsonObject


@dataclass
class Forecast:
    sky: str
    high: int
    low: int


@dataclass(kw_only=True)
class Weather(State):
    domain: ClassVar[str] = "weather"

    cities: tuple[str, ...]
    days: dict[str, dict[str, Forecast]]
    """City → day → forecast."""
    sun: dict[str, tuple[str, str]]
    air: dict[str, int]

    @classmethod
    def build(cls, rng: random.Random, setting: Setting) -> Self:
        days: dict[str, dict[str, Forecast]] = {}
        for city in setting.cities:
            highs = rng.sample(range(3, 35), len(WEEKDAYS))
            days[city] = {
                day: Forecast(rng.choice(SKIES), high, high - rng.randint(2, 12))
                for day, high in zip(WEEKDAYS, highs, strict=True)
            }
        return cls(
            cities=setting.cities,
            days=days,
            sun={
                city: (f"0{rng.randint(4, 8)}:{rng.randint(10, 59)}",
                       f"{rng.randint(16, 21)}:{rng.randint(10, 59)}")
                for city in setting.cities
            },
            air={city: rng.randint(5, 150) for city in setting.cities},
        )  # fmt: skip


@api("Sky, high and low temperature of a city on a day")
def get_forecast(weather: Weather, city: Name, day: Day) -> JsonObject:
    row = weather.days[require_city(weather.cities, city)][day]
    return {"sky": row.sky, "high": row.high, "low": row.low}


@api("Sky and high of a city for all days of the week")
def week_forecast(weather: Weather, city: Name, page: Page = 1) -> JsonObject:
    rows: list[JsonObject] = [
        {"day": day, "sky": row.sky, "high": row.high}
        for day, row in weather.days[require_city(weather.cities, city)].items()
    ]
    return page_of("days", rows, page)


@api("Sunrise and sunset in a city")
def sun_times(weather: Weather, city: Name) -> JsonObject:
    sunrise, sunset = weather.sun[require_city(weather.cities, city)]
    return {"sunrise": sunrise, "sunset": sunset}


@api("Air quality index of a city")
def air_quality(weather: Weather, city: Name) -> JsonObject:
    return {"index": weather.air[require_city(weather.cities, city)]}
