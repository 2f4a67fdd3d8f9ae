"""Currencies and their exchange rates. A rate is the units of the target for 100 of the source."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import ClassVar, Self

from loopline.agents.environments.api_worlds.api import (
    Amount,
    ApiError,
    Name,
    Setting,
    State,
    api,
)
from loopline.agents.environments.api_worlds.names import CURRENCIES
from loopline.agents.records import JsonObject


@dataclass(kw_only=True)
class Currency(State):
    domain: ClassVar[str] = "currency"
    generated: ClassVar[frozenset[str]] = frozenset({"alerts"})

    values: dict[str, int]
    """Currency → its value in thousandths of a dollar."""
    fee: dict[str, int]
    """Currency → fee in percent for changing into it."""
    alerts: dict[str, tuple[str, int]]

    @classmethod
    def build(cls, rng: random.Random, setting: Setting) -> Self:
        codes = ["USD", *rng.sample([code for code in CURRENCIES if code != "USD"], 5)]
        return cls(
            values={code: 1000 if code == "USD" else rng.randint(200, 2000) for code in codes},
            fee={code: rng.randint(1, 9) for code in codes},
            alerts={},
        )

    def rate(self, source: str, target: str) -> int:
        """Return the units of the target for 100 of the source, rounded to a whole number."""
        for code in (source, target):
            if code not in self.values:
                raise ApiError(f"unknown currency {code}")
        return round(100 * self.values[source] / self.values[target])


@api("What 100 of a currency are in another")
def exchange_rate(currency: Currency, source: Name, target: Name) -> JsonObject:
    return {"rate": currency.rate(source, target)}


@api("Convert an amount of money")
def convert_currency(currency: Currency, amount: Amount, source: Name, target: Name) -> JsonObject:
    return {"result": round(amount * currency.rate(source, target) / 100)}


@api("Fee in percent for changing into a currency")
def exchange_fee(currency: Currency, target: Name) -> JsonObject:
    currency.rate("USD", target)
    return {"percent": currency.fee[target]}


@api("Get an alert when 100 dollars reach a rate", changes=True)
def set_rate_alert(currency: Currency, target: Name, rate: Amount) -> JsonObject:
    currency.rate("USD", target)
    currency.alerts[currency.new_id("A")] = (target, rate)
    return {"alert": f"{target} {rate}"}
