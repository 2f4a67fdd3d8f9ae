"""Intents with two parts: a value must be found out before it can be used.

A *finding* is a phrase for a value (`the day parcel P4821 arrives`) with the calls that find it; an
*errand* is a request with a gap for a value of that kind (`Add Dentist to my calendar on {x}`).
Each finding is combined with each errand of its kind, unless both are the same call. So there are
far more combinations of APIs than written texts, and some can be kept away from training.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

from loopline.agents.environments.api_worlds.intent import (
    Draw,
    Intent,
    IntentText,
    Kind,
    Program,
    Slots,
    Step,
    Thought,
    Unsolvable,
    Wording,
    arguments_from_slots,
    single_call,
    text_of,
    wordings,
)
from loopline.agents.environments.api_worlds.world import World
from loopline.agents.environments.data_files import InvalidDataFile


@dataclass(frozen=True)
class Found:
    """The value of a finding, and a sentence that states it."""

    value: str | int
    sentence: str


Search = Generator[Step | Thought, Any, Found]


@dataclass(frozen=True)
class Finding:
    """A value that must be found out."""

    name: str
    kind: Kind
    tools: tuple[str, ...]
    phrases: tuple[Wording, ...]
    draw: Draw
    search: Callable[[Slots], Search]
    trouble: Draw | None


@dataclass(frozen=True)
class Errand:
    """A use of a value: the program gets the value in the slot `x`, and the sentence that states it
    in the slot `told`."""

    name: str
    kind: Kind
    tools: tuple[str, ...]
    requests: tuple[Wording, ...]
    draw: Callable[[random.Random, World, Any], Slots | None]
    """Draws slots that fit a world and the value."""
    program: Callable[[Slots], Program]


def finding(
    name: str,
    search: Callable[[Slots], Search] | None = None,
    *,
    draw: Draw,
    trouble: Draw | None = None,
) -> Finding:
    """Return a finding with the text in `findings.toml`, whose wordings are its phrases. Without a
    search, the single call of its text finds the value."""
    text = text_of("findings", name, whole=search is None)
    phrases, tools = wordings(name, text.wordings), tuple(text.tools.split())
    return Finding(name, _kind(text), tools, phrases, draw, search or _lookup_search(text), trouble)


def errand(
    name: str,
    program: Callable[[Slots], Program] | None = None,
    *,
    draw: Callable[[random.Random, World, Any], Slots | None],
) -> Errand:
    """Return an errand with the text in `errands.toml`, whose wordings have `{x}` in place of the
    phrase. Without a program, it is the single call of its text."""
    text = text_of("errands", name, whole=program is None)
    requests, tools = wordings(name, text.wordings), tuple(text.tools.split())
    return Errand(name, _kind(text), tools, requests, draw, program or single_call(text))


def _kind(text: IntentText) -> Kind:
    if text.kind is None:
        raise InvalidDataFile(f"a finding or errand with the tools {text.tools!r} has no kind")
    return text.kind


def _lookup_search(text: IntentText) -> Callable[[Slots], Search]:
    """Return a search with one call: the value is a field of its observation."""

    def search(slots: Slots) -> Search:
        arguments = arguments_from_slots(text.arguments, slots)
        observation = yield Step(text.why.format(**slots), text.tools, arguments)
        value = observation[text.facts]
        return Found(value, text.answer.format(x=value, **slots))

    return search


def combine(first: Finding, then: Errand) -> Intent:
    """Combine both into an intent. A wording is held out if both its parts are; mixed ones are left
    out, so that training never sees a part of a held-out wording."""

    def draw(rng: random.Random, world: World) -> Slots | None:
        first_slots = first.draw(rng, world)
        if first_slots is None:
            return None
        result = _find(first, first_slots, world)
        wanted = then.draw(rng, world, result.value) if result else None
        return None if wanted is None else {**wanted, **first_slots}

    def in_trouble(rng: random.Random, world: World) -> Slots | None:
        sound = draw(rng, world)
        wrong = first.trouble(rng, world) if first.trouble and sound else None
        return {**sound, **wrong} if sound and wrong else None

    def program(slots: Slots) -> Program:
        result = yield from first.search(slots)
        return (yield from then.program({**slots, "x": result.value, "told": result.sentence}))

    name = f"{first.name}+{then.name}"
    texts = (
        Wording(f"{request.id}+{phrase.id}", request.text.replace("{x}", phrase.text), held_out)
        for held_out in (False, True)
        for request in then.requests
        for phrase in first.phrases
        if request.held_out == phrase.held_out == held_out
    )
    tools = tuple(dict.fromkeys(first.tools + then.tools))
    trouble = in_trouble if first.trouble else None
    return Intent(name, tools, tuple(texts), draw, program, trouble)


def _find(first: Finding, slots: Slots, world: World) -> Found | None:
    """Return the result of a finding in a world; findings change nothing."""
    search = first.search(slots)
    try:
        step = next(search)
        while True:
            if isinstance(step, Thought):
                step = next(search)
            else:
                step = search.send(json.loads(world.call(step.tool, step.arguments)))
    except StopIteration as done:
        return done.value
    except Unsolvable:
        return None
