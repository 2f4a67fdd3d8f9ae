"""Questions that reach the shop, and what decides whether an answer to one is right."""

import random
import re
from dataclasses import dataclass

KINDS = (
    "{n} ordered {a} {g} at ${b} each. The delivery is ${c}. How much is the invoice? = a * b + c",
    "{n} buys {a} {g} for ${b} each and hands over ${d}. How much change do we give? = d - a * b",
    "{n} buys {a} {g} for ${b} each. We take ${c} off the bill. How much is due? = a * b - c",
    "A {g1} costs ${b}. {n} buys {a} {g} and has a gift card of ${c}. How much is left to pay?"
    " = a * b - c",
    "A box of {b} {g} costs ${d}. {n} takes {a} boxes. How many {g} does {n} get? = a * b",
    "{a} shelves hold {b} {g} each. We put {c} {g} more on them. How many {g} are on the shelves?"
    " = a * b + c",
    "There are {a} boxes of {b} {g} in the storeroom. {c} {g} arrive broken and are thrown away."
    " How many {g} can we sell? = a * b - c",
    "We sold {a} {g} on Monday and {c} {g} on Tuesday, each for ${b}. How much did we earn?"
    " = (a + c) * b",
    "{n} ordered {a} boxes of {b} {g}. {c} {g} are missing. How many {g} came? = a * b - c",
    "{n} works for {a} hours at ${b} per hour and gets ${c} as a tip. How much did {n} make?"
    " = a * b + c",
    "{a} customers buy {b} {g} each. {c} {g} are brought back. How many {g} did we sell for good?"
    " = a * b - c",
    "The shop opens with {d} {g}. {n} buys {a}, and {n}'s friend buys {b}. How many {g} are unsold?"
    " = d - a - b",
)
NAMES = "Ada Anna Bella Carla Emma Fatima Grace Hana Ines Adam Ben Carlos David Felix Hugo Leo Omar"
GOODS = "shirt hat lamp chair mug plate bag game doll book pen notebook towel plant belt kite ball"


@dataclass(frozen=True)
class Task:
    kind: int
    question: str
    answer: str

    def is_right(self, text: str) -> bool:
        numbers = re.findall(r"-?\d+(?:\.\d+)?", text.replace(",", ""))
        return bool(numbers) and numbers[-1] == self.answer


def tasks(count: int, seed: str, known: frozenset[str] = frozenset()) -> list[Task]:
    """As many different ones, of all kinds alike, without the questions that are known."""
    rng, made = random.Random(seed), dict[str, Task]()
    while len(made) < count:
        kind = len(made) % len(KINDS)
        text, _, expression = KINDS[kind].rpartition(" = ")
        a, b, good = rng.randint(4, 12), rng.randint(4, 15), rng.choice(GOODS.split())
        c, d = rng.randint(2, min(a, b) - 1), a * b + rng.randint(5, 40)
        numbers = {"a": a, "b": b, "c": c, "d": d}
        words = {"n": rng.choice(NAMES.split()), "g": f"{good}s", "g1": good}
        question = text.format(**numbers, **words)
        if question not in known:
            made[question] = Task(kind, question, str(eval(expression, {}, numbers)))  # ours
    return list(made.values())
