"""One candidate of a step: what its model read and wrote, what tools said, what it was worth."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from pydantic import JsonValue

from loopline.agents.records import Call, Candidate, JsonObject, Step, ToolCall
from loopline.runtime.observe.run_page.bounds import Room
from loopline.runtime.observe.run_page.tokenizers import Tokenizers
from loopline.runtime.observe.run_page.tokens import Learned, Lessons, facts_of, written
from loopline.runtime.terminal.pages import svg
from loopline.runtime.terminal.pages.curves import number

TOTAL = "total"
"""Reward part that sums up the others, where the environment says it."""
_BAR, _BAR_HEIGHT = 120.0, 9.0


@dataclass(frozen=True)
class Material:
    """What candidates are shown with."""

    room: Room
    tokenizers: Tokenizers
    lessons: Lessons


def anchor(step: Step, number: int | None = None) -> str:
    """Where a step, or one of its candidates, stands in the page."""
    place = f"s{step.turn}-{step.branch}"
    return place if number is None else f"{place}-c{number}"


def reward_of(candidate: Candidate) -> float | None:
    """The part `total`, else the sum of all parts; None without any, or if that is no number."""
    parts = candidate.reward_parts
    if not parts:
        return None
    value = parts[TOTAL] if TOTAL in parts else sum(parts.values())
    return value if math.isfinite(value) else None


def mean_logprob_of(candidate: Candidate) -> float | None:
    """Nats per token that it wrote; None where the engine doesn't say."""
    found = [each for call in candidate.calls for each in call.logprobs]
    return sum(found) / len(found) if found else None


def body(step: Step, number: int, material: Material, read_above: Sequence[int]) -> str:
    """A candidate without its head. `read_above` are prompt ids that are shown already."""
    candidate = step.candidates[number]
    parts = [rewards(candidate.reward_parts, step), _action(step, number, material.room)]
    outputs = _outputs(step) if number == step.selected else []
    before: Sequence[int] = read_above
    for at, call in enumerate(candidate.calls):
        learned = material.lessons.of(call, step, number)
        said = outputs[at] if at < len(outputs) else []
        parts.append(_call(call, before, said, material, learned))
        before = (*call.prompt_ids, *call.output_ids)
    return "".join(parts)


def read(ids: Sequence[int], call: Call, material: Material, after: int | None = None) -> str:
    """Prompt ids as text, folded; without a tokenizer, how many they are."""
    if not ids:
        return ""
    codec = material.tokenizers.codec(call)
    count = f"read {len(ids):,} {'more ' if after is not None else ''}tokens"
    if codec is None:
        return f'<div class="small soft">{count}</div>'
    text = material.room.text(codec.decode(list(ids), after))
    return (
        f"<details class=read><summary>{count}</summary>"
        f'<div class="said"><span class="t m0">{text}</span></div></details>'
    )


def rewards(parts: Mapping[str, float], step: Step) -> str:
    """Reward parts as bars, on the scale of all candidates of the step; those of 0 in a line."""
    if not parts:
        return ""
    values = [value for each in step.candidates for value in each.reward_parts.values()]
    known = [value for value in values if math.isfinite(value)]
    scale = svg.Scale(min(0.0, *known), max(0.0, *known), 0.0, _BAR) if any(known) else None
    rows = [(name, value) for name, value in parts.items() if value != 0]
    zero = [name for name, value in parts.items() if value == 0]
    shown = "".join(
        f"<tr><td>{escape(name)}</td><td>{_bar(value, scale)}</td><td>{_said(value)}</td></tr>"
        for name, value in rows
    )
    table = f'<table class="rewards"><tbody>{shown}</tbody></table>' if rows else ""
    none = f'<div class="small soft">0: {escape(", ".join(zero))}</div>' if zero else ""
    return f'<div class="worth">{table}{none}</div>'


def _bar(value: float, scale: svg.Scale | None) -> str:
    zero = 0.0 if scale is None else scale(0.0)
    end = zero if scale is None or not math.isfinite(value) else scale(value)
    look = "plus" if value >= 0 else "minus"
    return svg.tag(
        "svg",
        svg.rect(min(zero, end), 1.0, abs(end - zero), _BAR_HEIGHT - 2, look),
        svg.line(zero, 0.0, zero, _BAR_HEIGHT, "middle"),
        viewBox=f"0 0 {_BAR:g} {_BAR_HEIGHT:g}",
        width=_BAR,
        height=_BAR_HEIGHT,
        aria_hidden="true",
    )


def _said(value: float) -> str:
    return number(value) if math.isfinite(value) else "no number"


def _action(step: Step, number: int, room: Room) -> str:
    """What was read from the text, where the decision doesn't say it again."""
    decided = {"kind": step.decision.kind, **step.decision.data}
    action = step.candidates[number].action
    shown: JsonObject = {key: value for key, value in action.items() if value not in ({}, [], None)}
    if len(step.candidates) == 1 and shown.items() <= decided.items():
        return ""
    return f'<div class="action"><b>action</b> {room.json(shown)}</div>' if shown else ""


def _call(
    call: Call,
    before: Sequence[int],
    outputs: Sequence[JsonValue],
    material: Material,
    learned: Learned | None,
) -> str:
    goes_on = bool(before) and call.prompt_ids[: len(before)] == tuple(before)
    rest = call.prompt_ids[len(before) :] if goes_on else call.prompt_ids
    parts = [read(rest, call, material, before[-1] if goes_on else None)]
    parts.append(written(call, material.tokenizers, material.room, learned))
    for at in range(max(len(call.tool_calls), len(outputs))):
        asked = call.tool_calls[at] if at < len(call.tool_calls) else None
        parts.append(_tool(asked, outputs[at] if at < len(outputs) else None, material.room))
    facts = facts_of(call)
    if call.logprobs:
        facts["mean log p"] = number(sum(call.logprobs) / len(call.logprobs))
    if learned is not None:
        own = learned.sequence
        facts["learned"] = (
            f"step {own.step}, {own.policy} v{own.version}, advantage {number(own.advantage)}"
        )
    late = call.latency
    if late.total:
        facts["seconds"] = (
            f"{late.queue:.3f} queue + {late.first_token:.3f} prefill + {late.decode:.3f} decode"
        )
    said = "".join(
        f"<span><b>{escape(name)}</b> {escape(value)}</span>" for name, value in facts.items()
    )
    return f'<div class="call">{"".join(parts)}<div class="facts">{said}</div></div>'


def _tool(asked: ToolCall | None, entry: JsonValue, room: Room) -> str:
    """A tool call and what came back. Of a call that was written as text the entry says more."""
    name, arguments = "", ""
    if asked is not None:
        name = asked.name or "no tool"
        arguments = room.text(asked.raw_arguments) if asked.arguments is None else ""
        arguments = arguments or room.json(asked.arguments)
    elif isinstance(entry, dict):
        name, arguments = str(entry.get("tool", "")), room.json(entry.get("arguments"))
    shown = f"<b>{room.text(name)}</b>({arguments})"
    if asked is not None and asked.error:
        shown += f' <span class="failed">{room.text(asked.error)}</span>'
    if entry is None:
        return (
            f'<div class="tool">{shown}<div class="soft">handed over, or not answered</div></div>'
        )
    output = entry.get("output", entry) if isinstance(entry, dict) else entry
    if isinstance(output, dict) and set(output) == {"result"}:
        output = output["result"]
    look = "failed" if isinstance(output, dict) and "error" in output else "output"
    text = room.text(output) if isinstance(output, str) else room.json(output)
    return f'<div class="tool">{shown}<div class="{look}">{text}</div></div>'


def _outputs(step: Step) -> list[list[JsonValue]]:
    """Per call of the executed candidate, what its tool calls got: see `loopline.agents.roles`."""
    turns = step.observation.get("turns")
    if not isinstance(turns, list):
        return []
    return [turn if isinstance(turn, list) else [] for turn in turns]
