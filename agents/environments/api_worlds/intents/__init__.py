"""Users' intents, one file per domain, and the combinations of two."""

from __future__ import annotations

from loopline.agents.environments.api_worlds.intent import Intent
from loopline.agents.environments.api_worlds.intents import (
    bank,
    calendar,
    cinema,
    contacts,
    currency,
    flights,
    hotels,
    library,
    maps,
    parcels,
    recipes,
    restaurants,
    shop,
    sports,
    tasks,
    weather,
)
from loopline.agents.environments.api_worlds.intents.combinations import combine
from loopline.agents.environments.api_worlds.intents.errands import ERRANDS
from loopline.agents.environments.api_worlds.intents.findings import FINDINGS

SINGLE: tuple[Intent, ...] = (
    *bank.INTENTS, *calendar.INTENTS, *cinema.INTENTS, *contacts.INTENTS, *currency.INTENTS,
    *flights.INTENTS, *hotels.INTENTS, *library.INTENTS, *maps.INTENTS, *parcels.INTENTS,
    *recipes.INTENTS, *restaurants.INTENTS, *shop.INTENTS, *sports.INTENTS, *tasks.INTENTS,
    *weather.INTENTS,
)  # fmt: skip
"""Intents within one domain."""

COMBINED: tuple[Intent, ...] = tuple(
    combine(first, then)
    for first in FINDINGS
    for then in ERRANDS
    if first.kind == then.kind and not set(first.tools) & set(then.tools)
)
"""Intents of a finding and an errand."""

INTENTS: dict[str, Intent] = {intent.name: intent for intent in (*SINGLE, *COMBINED)}
