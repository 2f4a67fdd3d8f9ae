"""Users' intents for currencies."""

from __future__ import annotations

import random

from loopline.agents.environments.api_worlds.domains.currency import Currency
from loopline.agents.environments.api_worlds.intent import (
    Answer,
    Program,
    Slots,
    Step,
    compare_two,
    lookup,
    plan,
)
from loopline.agents.environments.api_worlds.intents.drawing import (
    choose_row,
    combine_draws,
    from_world,
)
from loopline.agents.environments.api_worlds.names import CURRENCIES
from loopline.agents.environments.api_worlds.world import World

a_target = from_world(
    "target", lambda world: [c for c in world.state(Currency).values if c != "USD"]
)


def no_target(rng: random.Random, world: World) -> Slots | None:
    code = choose_row(
        rng, [code for code in CURRENCIES if code not in world.state(Currency).values]
    )
    return code and {"target": code}


def a_pair(rng: random.Random, world: World) -> Slots:
    source, target = rng.sample([*world.state(Currency).values], 2)
    return {"source": source, "target": target}


def a_strange_pair(rng: random.Random, world: World) -> Slots | None:
    strange = no_target(rng, world)
    return strange and {"source": "USD", **strange}


def an_amount(rng: random.Random, world: World) -> Slots:
    return {"amount": rng.choice((rng.randint(2, 99), rng.randint(10, 90) * 10))}


def a_rate(rng: random.Random, world: World) -> Slots:
    return {"rate": rng.randint(50, 500)}


def two_targets(rng: random.Random, world: World) -> Slots | None:
    fee = world.state(Currency).fee
    target, other_target = rng.sample([*fee], 2)
    return None if fee[target] == fee[other_target] else {"target": target, "other": other_target}


def lower_fee(slots: Slots) -> Program:
    target, other_target = slots["target"], slots["other"]
    first = yield Step(f"First {target}.", "exchange_fee", {"target": target})
    second = yield Step(
        f"{target} has {first['percent']} percent. Now {other_target}.",
        "exchange_fee",
        {"target": other_target},
    )
    least, most = sorted((first["percent"], second["percent"]))
    best, worse = (target, other_target) if first["percent"] == least else (other_target, target)
    yield compare_two((target, first["percent"]), (other_target, second["percent"]), largest=False)
    return Answer(
        f"{best} has the lower fee, {least} percent.", (best, least),
        f"{best} has the lower fee.", (worse, most),
    )  # fmt: skip


INTENTS = (
    lookup(
        "currency.convert",
        draw=combine_draws(a_pair, an_amount),
        trouble=combine_draws(a_strange_pair, an_amount),
    ),
    lookup("currency.rate", draw=a_pair, trouble=a_strange_pair),
    lookup("currency.fee", draw=a_target, trouble=no_target),
    plan("currency.lower_fee", lower_fee, draw=two_targets),
    lookup(
        "currency.alert",
        draw=combine_draws(a_target, a_rate),
        trouble=combine_draws(no_target, a_rate),
    ),
)
