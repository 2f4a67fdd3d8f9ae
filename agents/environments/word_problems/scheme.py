"""Defines a scheme: one link of a story with its numbers, arithmetic and wordings.

A story is a chain: an opening scheme states a quantity, changes turn it into the next one, and an
asking scheme ends the story with the question. The quantity from the previous link is called `x`. A
scheme has one or more *parts*; each part is a sub-task that can be handed out, with a short list of
operations on two numbers.

Notation of the files in `schemes`, all of it parsed once:

* numbers: `a=2..12 b=1..x-1 k=divisor(x,2,9) m=multiple(k,2,12) p=percent(x)`; bounds are a
  number, a name, or a name plus or minus a number.
* operations: `a * b; r1 + c`, where `r1` is the result of the part's first operation and `t1`
  that of the scheme's first part.
* wordings: one per line; `[gives|hands]` is a choice of words inside one wording, `{a}` a slot.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Annotated, Literal

from pydantic import BeforeValidator, with_config

Place = Literal["open", "change", "ask"]
Operator = Literal["+", "-", "*", "/"]

PERCENTS = (10, 20, 25, 30, 40, 50, 60, 75, 80)

_NUMBER = re.compile(
    r"(?P<name>[a-z])=(?:(?P<low>[^.\s]+)\.\.(?P<high>[^.\s]+)|(?P<rule>[a-z]+)\((?P<args>[^)]*)\))"
)
_RULES = ("multiple", "divisor", "percent")
_BOUND = re.compile(r"(?P<name>[a-z])?(?P<offset>[+-]?\d+)?$")
_OPERATION = re.compile(r"(?P<left>\w+) (?P<op>[-+*/]) (?P<right>\w+)$")


@dataclass(frozen=True)
class Operation:
    """`left op right`, each side a number or a name."""

    left: str
    op: Operator
    right: str


def _operations(text: object) -> tuple[Operation, ...]:
    steps: list[Operation] = []
    for piece in str(text).split(";"):
        match = _OPERATION.match(piece.strip())
        if match is None:
            raise ValueError(f"not an operation: {piece!r}")
        op = match["op"]
        if op not in ("+", "-", "*", "/"):
            raise ValueError(f"unknown operator in {piece!r}")
        steps.append(Operation(match["left"], op, match["right"]))
    return tuple(steps)


@with_config(extra="forbid")
@dataclass(frozen=True)
class Part:
    """A sub-task: its operations, and its text when it is handed out."""

    operations: Annotated[tuple[Operation, ...], BeforeValidator(_operations)]
    task: str

    @cached_property
    def uses(self) -> frozenset[str]:
        """Names of earlier results (`x`, `t1`, …) that this part needs."""
        names = {side for step in self.operations for side in (step.left, step.right)}
        return frozenset(name for name in names if name == "x" or name.startswith("t"))


@dataclass(frozen=True)
class Wording:
    """One wording of a scheme. `held_out` wordings never occur in training."""

    id: str
    text: str
    held_out: bool


@dataclass(frozen=True)
class Scheme:
    """One link of a story."""

    name: str
    domain: str
    place: Place
    numbers: str
    label: str
    parts: tuple[Part, ...]
    wordings: tuple[Wording, ...]
    held_out: bool = False
    """Whether the structure never occurs in training."""

    def draw(self, rng: random.Random, x: int | None) -> dict[str, int] | None:
        """Draw numbers for this link, given the quantity so far; `None` if there are none."""
        values: dict[str, int] = {} if x is None else {"x": x}
        for match in _NUMBER.finditer(self.numbers):
            value = _draw(rng, match, values)
            if value is None:
                return None
            values[match["name"]] = value
        values.pop("x", None)
        return values

    def evaluate(self, values: Mapping[str, int]) -> list[list[Fraction]] | None:
        """Return the exact results of each part's operations; `None` if one is not a positive
        integer."""
        values_by_name: dict[str, Fraction] = {
            name: Fraction(value) for name, value in values.items()
        }
        results: list[list[Fraction]] = []
        for number, part in enumerate(self.parts, 1):
            row: list[Fraction] = []
            for index, step in enumerate(part.operations, 1):
                result = apply(
                    step.op, operand(step.left, values_by_name), operand(step.right, values_by_name)
                )
                if result <= 0 or result.denominator != 1:
                    return None
                values_by_name[f"r{index}"] = result
                row.append(result)
            values_by_name[f"t{number}"] = row[-1]
            results.append(row)
        return results


def operand(name: str, values: Mapping[str, Fraction]) -> Fraction:
    """Return the value of one side of an operation."""
    return Fraction(int(name)) if name.isdigit() else values[name]


def apply(op: Operator, left: Fraction, right: Fraction) -> Fraction:
    """Compute exactly with two numbers. Raises ZeroDivisionError."""
    match op:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
        case "/":
            return left / right


def _bound(text: str, values: Mapping[str, int]) -> int:
    match = _BOUND.match(text)
    if match is None:
        raise ValueError(f"not a bound: {text!r}")
    base = values[match["name"]] if match["name"] else 0
    return base + int(match["offset"] or 0)


def _draw(rng: random.Random, match: re.Match[str], values: Mapping[str, int]) -> int | None:
    rule = match["rule"]
    if rule is None:
        low, high = _bound(match["low"], values), _bound(match["high"], values)
        return rng.randint(low, high) if low <= high else None
    args = match["args"].split(",")
    of = values[args[0]]
    match rule:
        case "multiple":
            return of * rng.randint(int(args[1]), int(args[2]))
        case "divisor":
            fitting = [n for n in range(int(args[1]), int(args[2]) + 1) if of % n == 0 and n < of]
        case "percent":
            fitting = [p for p in PERCENTS if of * p % 100 == 0]
        case _:
            raise ValueError(f"unknown rule for a number: {rule!r}")
    return rng.choice(fitting) if fitting else None


def check_numbers(notation: str) -> str:
    """Check the notation of a scheme's numbers, and return it unchanged. Raises ValueError."""
    for entry in notation.split():
        match = _NUMBER.fullmatch(entry)
        if match is None:
            raise ValueError(f"not a number: {entry!r}")
        bounds = () if match["rule"] else (match["low"], match["high"])
        if any(_BOUND.fullmatch(bound) is None for bound in bounds):
            raise ValueError(f"not two bounds: {entry!r}")
        if match["rule"] not in (None, *_RULES):
            raise ValueError(f"unknown rule in {entry!r}; there are: {', '.join(_RULES)}")
    return notation
