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
    both,
    fixed,
    from_world,
    no_city,
    no_route,
    one,
    two_cities,
)
from loopline.agents.environments.api_worlds.names import PLACE_KINDS
from loopline.agents.environments.api_worlds.world import World

a_place = from_world("place", lambda world: world.state(Maps).places)
no_place = fixed("place", ("Moon museum", "Star park", "Sun bakery", "Mars station", "Sky theater"))


def a_kind_of_place(rng: random.Random, world: World) -> Slots | None:
    """A kind of which the city has one that is nearest."""
    places = world.state(Maps).places.values()
    meters = Counter((row.city, row.kind, row.meters) for row in places)
    nearest = {
        (row.city, row.kind): min(
            other.meters for other in places if (other.city, other.kind) == (row.city, row.kind)
        )
        for row in places
    }
    found = one(rng, [key for key, least in nearest.items() if meters[*key, least] == 1])
    return found and {"city": found[0], "kind": found[1]}


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
    lookup("maps.distance", "get_distance", "origin to", "I need the distance.",
           "It is {km} km from {origin} to {to}.", """
        How far is it from {origin} to {to}?
        What is the distance from {origin} to {to}?
        Tell me how many kilometers it is from {origin} to {to}.
        Find the distance between {origin} and {to}.
        How many km are there between {origin} and {to}?
        I travel from {origin} to {to}. How far is that?
        {origin} to {to}: how many kilometers?
        Check how far {origin} is from {to}.
        How long is the way from {origin} to {to} in km?
        """, draw=two_cities, facts="km", trouble=no_route),
    lookup("maps.travel_time", "travel_time", "origin to mode", "I need the travel time.",
           "It takes {minutes} minutes by {mode}.", """
        How long does it take from {origin} to {to} by {mode}?
        How many minutes is it from {origin} to {to} by {mode}?
        Tell me the travel time from {origin} to {to} by {mode}.
        Find out how long I need by {mode} from {origin} to {to}.
        By {mode}, how many minutes is it to {to} from {origin}?
        {origin} to {to} by {mode}: how many minutes?
        I go from {origin} to {to} by {mode}. How many minutes is that?
        Check the time it takes by {mode} from {origin} to {to}.
        """, draw=both(two_cities, fixed("mode", ("car", "train", "bike"))), facts="minutes"),
    plan("maps.nearest", "find_places", nearest, """
        What is the nearest {kind} in {city}, and how far is it?
        Which {kind} in {city} is the nearest, and how many meters is it?
        Find the nearest {kind} in {city} and tell me how far it is.
        I am in {city}. Which {kind} is the closest, and how far away is it?
        Tell me the closest {kind} in {city} and its distance.
        How far is the nearest {kind} in {city}, and what is its name?
        {city}: which {kind} is nearest, and how far?
        Look for the closest {kind} in {city} and its distance in meters.
        """, draw=a_kind_of_place, trouble=both(no_city, fixed("kind", PLACE_KINDS))),
    lookup("maps.address", "get_place", "place", "I look up {place}.",
           "{place} is at {address} in {city}.", """
        What is the address of {place}?
        Where is {place}?
        Tell me the address of {place}.
        Find out where {place} is.
        At which address is {place}?
        I need the address of {place}.
        {place}: what is the address?
        Look up where I find {place}.
        In which street is {place}, and at what number?
        """, draw=a_place, facts="address", trouble=no_place),
    plan("maps.nearest_address", "find_places get_place", nearest_address, """
        What is the address of the nearest {kind} in {city}?
        At which address is the closest {kind} in {city}?
        Find the nearest {kind} in {city} and tell me its address.
        I am in {city} and need a {kind}. What is the address of the nearest?
        Tell me the address of the closest {kind} in {city}.
        Where exactly is the nearest {kind} in {city}? Give me the address.
        {city}: the address of the nearest {kind}?
        Look up the address of the {kind} that is closest in {city}.
        """, draw=a_kind_of_place, trouble=both(no_city, fixed("kind", PLACE_KINDS))),
)  # fmt: skip
