"""Rules for calculating, keeping and answering."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal

from loopline.agents.environments.game import Refusal
from loopline.agents.environments.word_problem_team.instance import (
    LARGEST,
    Equation,
    WordProblemInstance,
    constants,
)
from loopline.agents.environments.word_problem_team.numbers import numbers_of
from loopline.agents.environments.word_problems.scheme import Operator, apply

OPERATORS: dict[str, Operator] = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
"""Operator by name of the call."""
Verb = Literal["keep", "answer"]
Key = tuple[Operator, int, int]
"""Key of a calculation, independent of the order of operands if the order does not matter."""


@dataclass(frozen=True, slots=True)
class Calculation:
    """A completed calculation: `r1 = mul(n1, n2) = 72`."""

    name: str
    """Name of the result: `r1`."""
    call: str
    left: str
    """Left operand as written: a number, or a name."""
    right: str
    values: tuple[int, int]
    result: int

    @property
    def key(self) -> Key:
        return key_of(OPERATORS[self.call], *self.values)

    def __str__(self) -> str:
        return f"{self.name} = {self.call}({self.left}, {self.right}) = {self.result}"


@dataclass(frozen=True, slots=True)
class Item:
    """One part of a plan agent's answer, or of a proposal."""

    verb: Verb
    of: str
    """Name of a result; for an answer it may be a number."""
    works: tuple[Calculation, ...] = ()
    """This turn's calculation with this name, preceded by those that it needs; empty if there is
    none."""

    def __str__(self) -> str:
        return f"{self.verb}({self.of})"


Items = tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class Work:
    """State of a problem: kept calculations and the answer."""

    calculations: tuple[Calculation, ...] = ()
    answer: int | None = None

    def result(self, name: str) -> int | None:
        """Return the result of a kept calculation; None if there is none with this name."""
        return next((step.result for step in self.calculations if step.name == name), None)

    @property
    def next_name(self) -> str:
        """Name of the next result."""
        return f"r{max((int(step.name[1:]) for step in self.calculations), default=0) + 1}"


def key_of(operator: Operator, left: int, right: int) -> Key:
    """Return the key of a calculation: the same for `a + b` and `b + a`."""
    swapped = operator in ("+", "*") and left > right
    return (operator, right, left) if swapped else (operator, left, right)


def equation_key(step: Equation) -> Key:
    """Return the key of a step of the solution."""
    return key_of(step.operator, step.left, step.right)


def available_numbers(instance: WordProblemInstance, work: Work) -> dict[str, int]:
    """Return the numbers that a calculation can use, by spelling: numbers of the text (also by name
    if names are shown), results by name and value, and `constants`."""
    values = {str(value): value for value in constants()}
    for number in numbers_of(instance.text):
        values[str(number.value)] = number.value
        if instance.setting.named:
            values[number.name] = number.value
    for step in work.calculations:
        values[str(step.result)] = values[step.name] = step.result
    return values


def calculate_step(
    instance: WordProblemInstance, work: Work, call: str, left: str, right: str
) -> Calculation | str:
    """Return the calculation, with the next name, or the reason why it is impossible."""
    values_by_name = available_numbers(instance, work)
    for side in (left, right):
        if side not in values_by_name:
            return f"{side} is not at hand"
    values = values_by_name[left], values_by_name[right]
    if call == "div" and not values[1]:
        return "division by 0"
    result = apply(OPERATORS[call], Fraction(values[0]), Fraction(values[1]))
    if result.denominator != 1:
        return "no whole number"
    if result <= 0:
        return "not above 0"
    if result > LARGEST:
        return "too large"
    return Calculation(work.next_name, call, left, right, values, int(result))


def keep_calculations(work: Work, works: Iterable[Calculation]) -> Work:
    """Return the state with these calculations kept, too."""
    new = tuple(step for step in works if step not in work.calculations)
    return replace(work, calculations=(*work.calculations, *new))


def apply_item(work: Work, item: Item) -> Work | Refusal:
    """Carry out an item. It is refused as `answered` after the answer, as `kept` for a calculation
    already kept, and as `not_calculated` for a result that is neither kept nor from this turn."""
    if work.answer is not None:
        return Refusal("answered", str(work.answer))
    if item.verb == "keep":
        if work.result(item.of) is not None:
            return Refusal("kept", item.of)
        if not item.works:
            return Refusal("not_calculated", item.of)
        return keep_calculations(work, item.works)
    if item.of.isdigit():
        return replace(work, answer=int(item.of))
    new_work = keep_calculations(work, item.works)
    value = new_work.result(item.of)
    if value is None:
        return Refusal("not_calculated", item.of)
    return replace(new_work, answer=value)


def with_dependencies(name: str, works: Sequence[Calculation]) -> tuple[Calculation, ...]:
    """Return the calculation with this name, preceded by those of `works` that it needs, in their
    order."""
    needed, chain = {name}, list[Calculation]()
    for step in reversed(works):
        if step.name in needed:
            needed |= {step.left, step.right}
            chain.append(step)
    return tuple(reversed(chain))


def solution_equation_count(instance: WordProblemInstance, work: Work) -> int:
    """Return the number of the solution's equations that were kept, except those whose result was
    answered, by name, as a number, or as the result of the same calculation repeated."""
    keys = {entry.key for entry in work.calculations if entry.result != work.answer}
    return sum(equation_key(step) in keys for step in instance.solution)
