"""Questions that reach the shop, and the check that decides whether an answer is right."""

import random
import re
from collections.abc import Collection
from dataclasses import dataclass

KINDS = """
{n} ordered {a} {g}s at ${b} each. The delivery is ${c}. How much is the invoice?
{n} buys {a} {g}s for ${b} each and hands over ${d}. How much change do we give?
{n} buys {a} {g}s for ${b} each. We take ${c} off the bill. How much is due?
A {g} costs ${b}. {n} buys {a} {g}s and has a gift card of ${c}. How much is left to pay?
A box of {b} {g}s costs ${d}. {n} takes {a} boxes. How many {g}s does {n} get?
{a} shelves hold {b} {g}s each. We put {c} {g}s more on them. How many {g}s are on the shelves?
There are {a} boxes of {b} {g}s in the storeroom. {c} {g}s are broken. How many {g}s can we sell?
We sold {a} {g}s on Monday and {c} {g}s on Tuesday, each for ${b}. How much did we earn?
{n} ordered {a} boxes of {b} {g}s. {c} {g}s are missing. How many {g}s came?
{n} works for {a} hours at ${b} per hour and gets ${c} as a tip. How much did {n} make?
{a} customers buy {b} {g}s each. {c} {g}s are brought back. How many {g}s did we sell for good?
The shop opens with {d} {g}s. {n} and a friend buy {a} {g}s each. How many {g}s are unsold?
""".strip().splitlines()
NAMES = "Ada Anna Bella Carla Emma Fatima Grace Hana Adam Ben Carlos David Felix Hugo Leo Omar"
GOODS = "shirt hat lamp chair mug plate bag game doll book pen notebook towel plant belt kite ball"


def answers(a: int, b: int, c: int, d: int) -> list[int]:
    """Return the answer to each kind of question, in the order of `KINDS`."""
    more, less, both = a * b + c, a * b - c, (a + c) * b
    return [more, d - a * b, less, less, a * b, more, less, both, less, more, less, d - 2 * a]


@dataclass(frozen=True)
class Task:
    kind: int
    question: str
    answer: int

    def is_right(self, text: str) -> bool:
        """The last number counts."""
        numbers = re.findall(r"-?\d+(?:\.\d+)?", text)
        return bool(numbers) and numbers[-1] == str(self.answer)


def tasks(count: int, seed: str, known: Collection[str] = ()) -> list[Task]:
    """Make `count` different tasks, spread evenly over all kinds, without any `known` question."""
    rng, made = random.Random(seed), dict[str, Task]()
    while len(made) < count:
        kind = len(made) % len(KINDS)
        name, good = rng.choice(NAMES.split()), rng.choice(GOODS.split())
        a, b = rng.randint(4, 12), rng.randint(4, 15)
        c, d = rng.randint(2, min(a, b) - 1), a * b + rng.randint(5, 40)
        question = KINDS[kind].format(n=name, g=good, a=a, b=b, c=c, d=d)
        if question not in known:
            made[question] = Task(kind, question, answers(a, b, c, d)[kind])
    return list(made.values())
