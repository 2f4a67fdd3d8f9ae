"""Users' intents for their parcels."""

from __future__ import annotations

import random

from loopline.agents.environments.api_worlds.domains.parcels import Parcels
from loopline.agents.environments.api_worlds.intent import (
    Answer,
    Program,
    Rows,
    Slots,
    Thought,
    lookup,
    pages,
    plan,
    pluralized_count,
    quote_row,
)
from loopline.agents.environments.api_worlds.intents.drawing import (
    a_day,
    combine_draws,
    from_values,
    from_world,
)
from loopline.agents.environments.api_worlds.names import CITIES, NO_CITIES
from loopline.agents.environments.api_worlds.world import World

KG = from_values("kg", (2, 3, 4, 5, 6, 7, 8, 9))
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
        statements = (
            f"{quote_row(rows[new])} {there(rows[: new + 1])}." for new in range(old, len(rows))
        )
        return Thought(" ".join(statements) or "Nothing.")

    rows = yield from pages(
        "list_parcels", "parcels", "I need all my parcels.", {}, read,
        lambda rows: f"So far {there(rows)} in {city}.",
    )  # fmt: skip
    count = there(rows)
    return Answer(
        f"You have {pluralized_count(count, 'parcel')} in {city}.",
        (count,),
        f"In all {count} in {city}.",
    )


INTENTS = (
    lookup("parcels.where", draw=a_parcel, trouble=no_parcel),
    lookup("parcels.arrives", draw=an_open_parcel, trouble=no_parcel),
    plan("parcels.count", count_in_city, draw=a_parcel_city),
    lookup(
        "parcels.change",
        draw=combine_draws(an_open_parcel, a_day),
        trouble=combine_draws(a_delivered_parcel, a_day),
    ),
    lookup("parcels.quote", draw=combine_draws(a_target, KG), trouble=combine_draws(no_target, KG)),
    lookup("parcels.send", draw=combine_draws(a_target, KG), trouble=combine_draws(no_target, KG)),
)
