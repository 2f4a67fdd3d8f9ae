"""Variants of a few trajectories: the same solution with other names, and with other tools next to
those that it calls. A small model that sees one example ten times memorizes its names; from ten
variants of it, it learns where to read them.

A variant needs no model calls, so it costs nothing. It is a consistent text, not a run: the new
names do not exist in its world.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from pydantic import JsonValue

from loopline.agents.records import ToolSpec
from loopline.agents.roles.umi.output import Action
from loopline.trainers.data.trajectories import Step, Trajectory

_OTHER_TOOL = 0.5
_OTHER_NAME = 0.7
"""Probabilities that a form replaces a tool that is never called, and that it replaces a name."""

Names = Mapping[str, Sequence[str]]
"""Names that may replace each other, by the argument whose values they are."""


def with_forms(trajectories: Sequence[Trajectory], forms: int, seed: int) -> list[Trajectory]:
    """Return each trajectory followed by `forms - 1` further forms of it; names and tools come from
    the other trajectories.

    A name is a capitalised value of an argument that the instruction contains word for word. It is
    replaced everywhere, by a name that the trajectory does not contain, so that different names
    stay different. If a trajectory gives up, no tool is replaced, since another tool might help.
    """
    rng = random.Random(f"forms:{seed}")
    names = _names(trajectories)
    tools = {tool.name: tool for entry in trajectories for tool in entry.tools}
    offered = [tools[name] for name in sorted(tools)]
    varied: list[Trajectory] = []
    for entry in trajectories:
        varied.append(entry)
        for number in range(2, forms + 1):
            form = replace(
                entry,
                id=f"{entry.id}~{number}",
                instruction_id=f"{entry.instruction_id}~{number}",
                tools=_other_tools(entry, offered, rng),
            )
            varied.append(_other_names(form, names, rng))
    return varied


def _is_name(value: JsonValue) -> bool:
    # Not numbers, times or codes: their order, or their form, may matter.
    return (
        isinstance(value, str)
        and len(value) > 2
        and value[:1].isupper()
        and value.replace(" ", "").isalpha()
    )


def _names(trajectories: Sequence[Trajectory]) -> Names:
    names: dict[str, set[str]] = {}
    for entry in trajectories:
        for argument, value in _arguments(entry):
            if _is_name(value):
                names.setdefault(argument, set()).add(str(value))
    return {argument: sorted(values) for argument, values in names.items()}


def _arguments(entry: Trajectory) -> list[tuple[str, JsonValue]]:
    return [
        (name, value)
        for step in entry.steps
        if step.call is not None
        for name, value in step.call.arguments.items()
    ]


def _other_tools(
    entry: Trajectory, offered: Sequence[ToolSpec], rng: random.Random
) -> tuple[ToolSpec, ...]:
    called = {step.call.name for step in entry.steps if step.call is not None}
    tools = list(entry.tools)
    if entry.steps[-1].next == "conclude":
        for at, tool in enumerate(tools):
            other = rng.choice(offered)
            if tool.name in called or rng.random() > _OTHER_TOOL:
                continue
            if all(other.name != present.name for present in tools):
                tools[at] = other
    rng.shuffle(tools)
    return tuple(tools)


def _other_names(entry: Trajectory, names: Names, rng: random.Random) -> Trajectory:
    text = repr((entry.instruction, entry.steps))
    others: dict[str, str] = {}
    for argument, value in _arguments(entry):
        name = str(value)
        if not _is_name(value) or name in others or rng.random() > _OTHER_NAME:
            continue
        if not re.search(_whole(name), entry.instruction):
            continue
        free = [
            other for other in names[argument] if other not in text and other not in others.values()
        ]
        if free:
            others[name] = rng.choice(free)
    if not others:
        return entry
    return replace(
        entry,
        instruction=_replaced_text(entry.instruction, others),
        steps=tuple(_replaced_step(step, others) for step in entry.steps),
    )


def _replaced_step(step: Step, others: Mapping[str, str]) -> Step:
    call = step.call
    if call is not None:
        arguments = {name: _replaced(value, others) for name, value in call.arguments.items()}
        call = Action(call.name, arguments)
    return replace(
        step,
        rationale=_replaced_text(step.rationale, others),
        call=call,
        raw_call=step.raw_call and _replaced_text(step.raw_call, others),
        output=_replaced(step.output, others),
        answer=step.answer and _replaced_text(step.answer, others),
    )


def _replaced(value: JsonValue, others: Mapping[str, str]) -> JsonValue:
    match value:
        case str():
            return _replaced_text(value, others)
        case dict():
            return {key: _replaced(entry, others) for key, entry in value.items()}
        case list():
            return [_replaced(entry, others) for entry in value]
        case _:
            return value


def _replaced_text(text: str, others: Mapping[str, str]) -> str:
    # The longer name first: one may be a prefix of the other.
    pattern = "|".join(_whole(name) for name in sorted(others, key=len, reverse=True))
    return re.sub(pattern, lambda match: others[match.group()], text)


def _whole(name: str) -> str:
    return rf"(?<!\w){re.escape(name)}(?!\w)"
