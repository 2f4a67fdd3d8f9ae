"""What users want of currencies."""

from __future__ import annotations

import random

from loopline.agents.environments.api_worlds.domains.currency import Currency
from loopline.agents.environments.api_worlds.intent import (
    Answer,
    Program,
    Slots,
    Step,
    lookup,
    plan,
    two_weighed,
)
from loopline.agents.environments.api_worlds.intents.drawing import both, from_world, one
from loopline.agents.environments.api_worlds.names import CURRENCIES
from loopline.agents.environments.api_worlds.world import World

a_target = from_world(
    "target", lambda world: [c for c in world.state(Currency).values if c != "USD"]
)


def no_target(rng: random.Random, world: World) -> Slots | None:
    code = one(rng, [code for code in CURRENCIES if code not in world.state(Currency).values])
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
    target, other = rng.sample([*fee], 2)
    return None if fee[target] == fee[other] else {"target": target, "other": other}


def lower_fee(slots: Slots) -> Program:
    target, other = slots["target"], slots["other"]
    first = yield Step(f"First {target}.", "exchange_fee", {"target": target})
    second = yield Step(
        f"{target} has {first['percent']} percent. Now {other}.", "exchange_fee", {"target": other}
    )
    least, most = sorted((first["percent"], second["percent"]))
    best, worse = (target, other) if first["percent"] == least else (other, target)
    yield two_weighed((target, first["percent"]), (other, second["percent"]), largest=False)
    return Answer(
        f"{best} has the lower fee, {least} percent.", (best, least),
        f"{best} has the lower fee.", (worse, most),
    )  # fmt: skip


INTENTS = (
    lookup("currency.convert", "convert_currency", "amount source target",
           "I convert {amount} {source} to {target}.", "That is {result} {target}.", """
        How much is {amount} {source} in {target}?
        Convert {amount} {source} to {target}.
        What are {amount} {source} worth in {target}?
        Tell me how many {target} I get for {amount} {source}.
        I have {amount} {source}. How much is that in {target}?
        Find out what {amount} {source} are in {target}.
        {amount} {source} in {target}: how much?
        Change {amount} {source} into {target}: what do I get?
        How many {target} are {amount} {source}?
        """, draw=both(a_pair, an_amount), facts="result", trouble=both(a_strange_pair, an_amount)),
    lookup("currency.rate", "exchange_rate", "source target", "I need the rate.",
           "The rate from {source} to {target} is {rate}.", """
        What is the exchange rate from {source} to {target}?
        How many {target} do I get for 100 {source}, by the exchange rate?
        Tell me the rate of {source} to {target}.
        Find the exchange rate from {source} to {target}.
        {source} to {target}: what is the rate?
        Look up the exchange rate of {source} against {target}.
        At which rate can {source} be changed into {target}?
        Check the current rate from {source} to {target}.
        """, draw=a_pair, facts="rate", trouble=a_strange_pair),
    lookup("currency.fee", "exchange_fee", "target", "I need the fee.",
           "The fee for {target} is {percent} percent.", """
        What is the fee for changing money into {target}?
        How many percent does it cost to change into {target}?
        Tell me the exchange fee for {target}.
        Find out the fee for {target} in percent.
        I want to change money into {target}. What is the fee?
        {target}: what is the exchange fee?
        Look up what fee I pay for {target}.
        Check the fee for exchanging into {target}.
        """, draw=a_target, facts="percent", trouble=no_target),
    plan("currency.lower_fee", "exchange_fee", lower_fee, """
        Is the exchange fee lower for {target} or for {other}, and what is it?
        Which has the lower exchange fee, {target} or {other}, and how many percent is it?
        Compare the exchange fees of {target} and {other}: which is lower, and how high is it?
        Tell me whether {target} or {other} has the lower fee, and the fee.
        Find the lower exchange fee of {target} and {other}, and say which one has it.
        {target} or {other}: for which is the exchange fee lower, and what is it?
        Of {target} and {other}, which costs less to change into, and how many percent?
        Check which exchange fee is lower, that of {target} or that of {other}, and how much it is.
        """, draw=two_targets),
    lookup("currency.alert", "set_rate_alert", "target rate", "I set the alert.",
           "You get an alert when {target} is at {rate}.", """
        Set an alert for {target} at {rate}.
        Tell me when the rate of {target} reaches {rate}. Set an alert.
        I want an alert when 100 dollars are {rate} {target}.
        Create a rate alert for {target} at {rate}.
        Let me know when {target} is at {rate}. Set an alert.
        {target} at {rate}: set a rate alert.
        Give me an alert as soon as {target} reaches {rate}.
        Make a currency alert: {target}, {rate}.
        """, draw=both(a_target, a_rate), trouble=both(no_target, a_rate)),
)  # fmt: skip
