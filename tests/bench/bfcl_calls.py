"""Calls derived from BFCL's own possible answers by one seeded mutation each, right and wrong ones.

A mutated call need not be wrong (a changed value may be another possible one): the published
checker decides.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from loopline.bench.checkers.tool_calls import ToolCall
from loopline.bench.datasets.bfcl import Question, WantedCall

Calls = list[ToolCall]
_LEFT_OUT = ""


@dataclass(frozen=True)
class Generated:
    """An answer to a question, and its mutation."""

    mutation: str
    question: Question
    calls: Calls


def generate(questions: tuple[Question, ...], seed: int) -> Iterator[Generated]:
    """Each mutation of each question's answer, if it applies."""
    for question in questions:
        for name, mutate in MUTATIONS.items():
            rng = random.Random(f"{seed}/{question.id}/{name}")
            calls = mutate(question, [_answer(wanted, rng) for wanted in question.wanted], rng)
            if calls is not None:
                yield Generated(name, question, calls)


def written(calls: Calls) -> str:
    """The calls as Python, as BFCL's prompt requests them."""
    texts = (
        f"{call.name}({', '.join(f'{name}={value!r}' for name, value in call.arguments.items())})"
        for call in calls
    )
    return f"[{', '.join(texts)}]"


def _answer(wanted: WantedCall, rng: random.Random) -> ToolCall:
    """Any possible value for each argument; optional arguments are left out half of the time."""
    arguments: dict[str, Any] = {}
    for name, possible in wanted.arguments.items():
        values = [value for value in possible if value != _LEFT_OUT]
        if values and (len(values) == len(possible) or rng.random() < 0.5):
            arguments[name] = _chosen(rng.choice(values), rng)
    return ToolCall(wanted.name, arguments)


def _chosen(value: Any, rng: random.Random) -> Any:
    """A possible object contains a list of values under each key; other values are plain."""
    if isinstance(value, dict):
        return {key: rng.choice(values) for key, values in value.items() if values != [_LEFT_OUT]}
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return [_chosen(item, rng) for item in value]
    return value


def _of_one_call(
    change: Callable[[Question, ToolCall, random.Random], ToolCall | None],
) -> Callable[[Question, Calls, random.Random], Calls | None]:
    def mutate(question: Question, calls: Calls, rng: random.Random) -> Calls | None:
        at = rng.randrange(len(calls))
        changed = change(question, calls[at], rng)
        return None if changed is None else [*calls[:at], changed, *calls[at + 1 :]]

    return mutate


def _of_one_value(
    change: Callable[[Any, random.Random], Any],
) -> Callable[[Question, Calls, random.Random], Calls | None]:
    def mutate(_: Question, call: ToolCall, rng: random.Random) -> ToolCall | None:
        names = [name for name, value in call.arguments.items() if change(value, rng) is not None]
        if not names:
            return None
        name = rng.choice(names)
        changed = change(call.arguments[name], rng)
        return replace(call, arguments={**call.arguments, name: changed})

    return _of_one_call(mutate)


def _other_value(value: Any, rng: random.Random) -> Any:
    match value:
        case bool():
            return not value
        case int():
            return value + rng.choice([-10, -1, 1, 7])
        case float():
            return value * 1.5 + 0.25
        case str():
            return f"{value} {rng.choice(['north', 'x', '2'])}"
        case list():
            return [*value, value[0]] if value else ["x"]
        case dict():
            return {key: _other_value(item, rng) for key, item in value.items()}
        case _:
            return None


def _other_type(value: Any, rng: random.Random) -> Any:
    match value:
        case bool():
            return str(value)
        case int() | float():
            return rng.choice([str(value), [value], value > 0])
        case str():
            return rng.choice([3, [value], {"value": value}, True, 2.5])
        case list():
            return rng.choice([str(value), {"items": value}, 7])
        case _:
            return str(value)


def _respelled(value: Any, rng: random.Random) -> Any:
    """Other case, other punctuation, other quotes: the same text for BFCL."""
    if isinstance(value, str):
        return rng.choice([value.upper(), value.replace(" ", "-"), f" {value}.", f"{value}^*"])
    if isinstance(value, list) and any(isinstance(item, str) for item in value):
        return [_respelled(item, rng) if isinstance(item, str) else item for item in value]
    if isinstance(value, dict):
        return {
            key: _respelled(item, rng) if isinstance(item, str) else item
            for key, item in value.items()
        }
    return None


def _whole_or_broken_number(value: Any, _: random.Random) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if isinstance(value, int) else int(value)


def _shorter(value: Any, rng: random.Random) -> Any:
    if isinstance(value, list | dict) and value:
        dropped = rng.randrange(len(value))
        if isinstance(value, list):
            return value[:dropped] + value[dropped + 1 :]
        return {key: item for at, (key, item) in enumerate(value.items()) if at != dropped}
    return None


def _turned_round(value: Any, _: random.Random) -> Any:
    if isinstance(value, list) and len(value) > 1:
        return value[::-1]
    return dict(reversed(value.items())) if isinstance(value, dict) else None


def _odd_element(value: Any, rng: random.Random) -> Any:
    if isinstance(value, list) and value:
        at = rng.randrange(len(value))
        return [*value[:at], _other_type(value[at], rng), *value[at + 1 :]]
    return {**value, "unheard_of": 1} if isinstance(value, dict) else None


def _as_tuple(value: Any, _: random.Random) -> Any:
    return tuple(value) if isinstance(value, list) else None


def _absurd(value: Any, _: random.Random) -> Any:
    return 10**400 if isinstance(value, float) else None


def _without_an_argument(_: Question, call: ToolCall, rng: random.Random) -> ToolCall | None:
    if not call.arguments:
        return None
    gone = rng.choice(list(call.arguments))
    return replace(call, arguments={k: v for k, v in call.arguments.items() if k != gone})


def _with_an_unknown_argument(_: Question, call: ToolCall, __: random.Random) -> ToolCall:
    return replace(call, arguments={**call.arguments, "unheard_of": 1})


def _with_a_known_argument(
    question: Question, call: ToolCall, rng: random.Random
) -> ToolCall | None:
    """An argument that the function has and the answer lacks."""
    function = question.function(call.name)
    names = sorted(function.parameters.properties.keys() - call.arguments) if function else []
    value = rng.choice(["x", "", 1, 0.5, True, [], {}, None])
    return replace(call, arguments={**call.arguments, rng.choice(names): value}) if names else None


def _under_another_name(question: Question, call: ToolCall, rng: random.Random) -> ToolCall:
    others = [function.name for function in question.functions if function.name != call.name]
    return replace(call, name=rng.choice([*others, f"{call.name}s", call.name[1:]]))


def _with_none(_: Question, call: ToolCall, rng: random.Random) -> ToolCall | None:
    if not call.arguments:
        return None
    return replace(call, arguments={**call.arguments, rng.choice(list(call.arguments)): None})


def _with_arguments_turned_round(_: Question, call: ToolCall, __: random.Random) -> ToolCall:
    return replace(call, arguments=dict(reversed(call.arguments.items())))


def _shuffled(_: Question, calls: Calls, rng: random.Random) -> Calls | None:
    return rng.sample(calls, len(calls)) if len(calls) > 1 else None


MUTATIONS: dict[str, Callable[[Question, Calls, random.Random], Calls | None]] = {
    "as it should be": lambda _, calls, __: calls,
    "as it should be, again": lambda _, calls, __: calls,
    "calls in another order": _shuffled,
    "calls in yet another order": _shuffled,
    "no call": lambda _, __, ___: [],
    "a call too few": lambda _, calls, __: calls[1:] if len(calls) > 1 else None,
    "a call too many": lambda _, calls, rng: [*calls, rng.choice(calls)],
    "a call twice": lambda _, calls, __: [*calls[:-1], calls[0]] if len(calls) > 1 else None,
    "another function": _of_one_call(_under_another_name),
    "an argument missing": _of_one_call(_without_an_argument),
    "an unknown argument": _of_one_call(_with_an_unknown_argument),
    "a known argument more": _of_one_call(_with_a_known_argument),
    "arguments in another order": _of_one_call(_with_arguments_turned_round),
    "null": _of_one_call(_with_none),
    "another value": _of_one_value(_other_value),
    "another type": _of_one_value(_other_type),
    "another spelling": _of_one_value(_respelled),
    "a whole number for a broken one, or the other way": _of_one_value(_whole_or_broken_number),
    "an element less": _of_one_value(_shorter),
    "elements in another order": _of_one_value(_turned_round),
    "an element of another type": _of_one_value(_odd_element),
    "a tuple for a list": _of_one_value(_as_tuple),
    "an absurd number": _of_one_value(_absurd),
}
