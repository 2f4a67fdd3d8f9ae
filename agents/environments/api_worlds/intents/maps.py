"""What users want of maps."""

from __future__ import annotations

import random
from collections import Counter

from loopline.agents.environments.api_worlds.domains.maps import Maps
from loopline.agents.environments.api_worlds.intent import (
    Answer,
    Program,
    Slots,
    Step,
    best_of,
    lookup,
    plan,
)
from loopline.agents.environments.api_worlds.intents.drawing import (
    choose_row,
    combine_draws,
    from_values,
    from_world,
    no_city,
    no_route,
    two_cities,
)
from loopline.agents.environments.api_worlds.names import PLACE_KINDS
from loopline.agents.environments.api_worlds.world import World

a_place = from_world("place", lambda world: world.state(Maps).places)
no_place = from_values(
    "place", ("Moon museum", "Star park", "Sun bakery", "Mars station", "Sky theater")
)


def a_kind_of_place(rng: random.Random, world: World) -> Slots | None:
    """Draw a kind of place with a unique nearest one in the city."""
    places = world.state(Maps).places.values()
    meters = Counter((row.city, row.kind, row.meters) for row in places)
    nearest = {
        (row.city, row.kind): min(
            candidate.meters
            for candidate in places
            if (candidate.city, candidate.kind) == (row.city, row.kind)
        )
        for row in places
    }
    pick = choose_row(rng, [key for key, least in nearest.items() if meters[*key, least] == 1])
    return pick and {"city": pick[0], "kind": pick[1]}


def nearest(slots: Slots) -> Program:
    city, kind = slots["city"], slots["kind"]
    best = yield from best_of(
        "find_places", "places", f"I look for a {kind} in {city}.", {"city": city, "kind": kind},
        label="place", by="meters",
    )  # fmt: skip
    return Answer(
        f"The nearest {kind} is {best['place']}, {best['meters']} meters away.",
        (best["place"], best["meters"]),
        f"{best['place']} with {best['meters']} meters is the nearest.",
    )  # fmt: skip


def nearest_address(slots: Slots) -> Program:
    city, kind = slots["city"], slots["kind"]
    best = yield from best_of(
        "find_places", "places", f"I look for a {kind} in {city}.", {"city": city, "kind": kind},
        label="place", by="meters",
    )  # fmt: skip
    place = best["place"]
    row = yield Step(f"{place} is the nearest. I need its address.", "get_place", {"place": place})
    return Answer(
        f"The nearest {kind} is at {row['address']}.", (row["address"],), "Now I know the address."
    )


INTENTS = (
    lookup("maps.distance", draw=two_cities, trouble=no_route),
    lookup(
        "maps.travel_time",
        draw=combine_draws(two_cities, from_values("mode", ("car", "train", "bike"))),
    ),
    plan(
        "maps.nearest",
        nearest,
        draw=a_kind_of_place,
        trouble=combine_draws(no_city, from_values("kind", PLACE_KINDS)),
    ),
    lookup("maps.address", draw=a_place, trouble=no_place),
    plan(
        "maps.nearest_address",
        nearest_address,
        draw=a_kind_of_place,
        trouble=combine_draws(no_city, from_values("kind", PLACE_KINDS)),
    ),
)
