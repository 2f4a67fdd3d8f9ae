"""Renders one candidate of a step: its model's input and output, tool results, its rewards."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup
from pydantic import JsonValue

from loopline.agents.records import Call, Candidate, JsonObject, Step, ToolCall
from loopline.runtime.observe.run_page.bounds import SizeBudget
from loopline.runtime.observe.run_page.tokenizers import Tokenizers
from loopline.runtime.observe.run_page.tokens import (
    LearnedCompletions,
    TrainedCompletion,
    completion_html,
    facts_of,
)
from loopline.runtime.terminal.pages import svg
from loopline.runtime.terminal.pages.curves import number
from loopline.runtime.terminal.pages.templates import render

TOTAL = "total"
"""Reward part that sums up the others, if the environment provides it."""
_BAR, _BAR_HEIGHT = 120.0, 9.0


@dataclass(frozen=True)
class CandidateContext:
    """Context for rendering candidates."""

    room: SizeBudget
    tokenizers: Tokenizers
    learned: LearnedCompletions


def anchor(step: Step, number: int | None = None) -> str:
    """Return the element id of a step or of one of its candidates."""
    place = f"s{step.turn}-{step.branch}"
    return place if number is None else f"{place}-c{number}"


def reward_of(candidate: Candidate) -> float | None:
    """Return the part `total`, or else the sum of all parts; None without parts, or if the result
    is not finite."""
    parts = candidate.reward_parts
    if not parts:
        return None
    value = parts[TOTAL] if TOTAL in parts else sum(parts.values())
    return value if math.isfinite(value) else None


def mean_logprob_of(candidate: Candidate) -> float | None:
    """Return the mean log-probability in nats per token; None if the engine reports none."""
    logprobs = [logprob for call in candidate.calls for logprob in call.logprobs]
    return sum(logprobs) / len(logprobs) if logprobs else None


@dataclass(frozen=True)
class Prompt:
    """Prompt that a model read."""

    count: str
    text: Markup | None
    """The text as markup; None without a tokenizer."""


@dataclass(frozen=True)
class _Tool:
    """A tool call and its result."""

    name: Markup
    arguments: Markup
    error: Markup | None
    output: Markup | None
    """Output of the call; None if the call returned nothing."""
    failed: bool = False


def body(step: Step, number: int, material: CandidateContext, read_above: Sequence[int]) -> Markup:
    """Render a candidate without its head. `read_above`: prompt ids that are already shown."""
    candidate = step.candidates[number]
    parts = candidate.reward_parts
    action = _action(step, number, material.room)
    outputs = _outputs(step) if number == step.selected else []
    before: Sequence[int] = read_above
    calls: list[dict[str, object]] = []
    for at, call in enumerate(candidate.calls):
        learned = material.learned.of(call, step, number)
        call_outputs = outputs[at] if at < len(outputs) else []
        calls.append(_call(call, before, call_outputs, material, learned))
        before = (*call.prompt_ids, *call.output_ids)
    return render(
        "loopline.runtime.observe.run_page", "candidate.html.j2",
        rewards=_rewards(parts, step), zero=[name for name, value in parts.items() if value == 0],
        action=action, calls=calls,
    )  # fmt: skip


def prompt_html(
    ids: Sequence[int], call: Call, material: CandidateContext, after: int | None = None
) -> Prompt | None:
    """Return prompt ids as text; None if there are none."""
    if not ids:
        return None
    codec = material.tokenizers.codec(call)
    count = f"read {len(ids):,} {'more ' if after is not None else ''}tokens"
    text = None if codec is None else material.room.text(codec.decode(list(ids), after))
    return Prompt(count, text)


def _rewards(parts: Mapping[str, float], step: Step) -> list[tuple[str, str, str]]:
    """Show the nonzero reward parts as bars, on the scale of all candidates of the step."""
    values = [value for candidate in step.candidates for value in candidate.reward_parts.values()]
    finite_values = [value for value in values if math.isfinite(value)]
    scale = (
        svg.Scale(min(0.0, *finite_values), max(0.0, *finite_values), 0.0, _BAR)
        if any(finite_values)
        else None
    )
    return [
        (name, _bar(value, scale), _format_value(value))
        for name, value in parts.items()
        if value != 0
    ]


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


def _format_value(value: float) -> str:
    return number(value) if math.isfinite(value) else "no number"


def _action(step: Step, number: int, room: SizeBudget) -> Markup | None:
    """Return the parsed action unless the decision repeats it."""
    decided = {"kind": step.decision.kind, **step.decision.data}
    action = step.candidates[number].action
    fields: JsonObject = {
        key: value for key, value in action.items() if value not in ({}, [], None)
    }
    if len(step.candidates) == 1 and fields.items() <= decided.items():
        return None
    return room.json(fields) if fields else None


def _call(
    call: Call,
    before: Sequence[int],
    outputs: Sequence[JsonValue],
    material: CandidateContext,
    learned: TrainedCompletion | None,
) -> dict[str, object]:
    is_continuation = bool(before) and call.prompt_ids[: len(before)] == tuple(before)
    rest = call.prompt_ids[len(before) :] if is_continuation else call.prompt_ids
    prompt = prompt_html(rest, call, material, before[-1] if is_continuation else None)
    completion = completion_html(call, material.tokenizers, material.room, learned)
    tools: list[_Tool] = []
    for at in range(max(len(call.tool_calls), len(outputs))):
        tool_call = call.tool_calls[at] if at < len(call.tool_calls) else None
        tools.append(_tool(tool_call, outputs[at] if at < len(outputs) else None, material.room))
    facts = facts_of(call)
    if call.logprobs:
        facts["mean log p"] = number(sum(call.logprobs) / len(call.logprobs))
    if learned is not None:
        sequence = learned.sequence
        facts["learned"] = (
            f"step {sequence.step}, {sequence.policy} v{sequence.version}, advantage "
            f"{number(sequence.advantage)}"
        )
    late = call.latency
    if late.total:
        facts["seconds"] = (
            f"{late.queue:.3f} queue + {late.first_token:.3f} prefill + {late.decode:.3f} decode"
        )
    return {"read": prompt, "written": completion, "tools": tools, "facts": facts}


def _tool(tool_call: ToolCall | None, entry: JsonValue, room: SizeBudget) -> _Tool:
    """Return a tool call and its result. If the call was written as text, the entry has more."""
    name, arguments = "", Markup()
    if tool_call is not None:
        name = tool_call.name or "no tool"
        arguments = room.text(tool_call.raw_arguments) if tool_call.arguments is None else Markup()
        arguments = arguments or room.json(tool_call.arguments)
    elif isinstance(entry, dict):
        name, arguments = str(entry.get("tool", "")), room.json(entry.get("arguments"))
    call_html = room.text(name)
    error = room.text(tool_call.error) if tool_call is not None and tool_call.error else None
    if entry is None:
        return _Tool(call_html, arguments, error, None)
    output = entry.get("output", entry) if isinstance(entry, dict) else entry
    if isinstance(output, dict) and set(output) == {"result"}:
        output = output["result"]
    failed = isinstance(output, dict) and "error" in output
    text = room.text(output) if isinstance(output, str) else room.json(output)
    return _Tool(call_html, arguments, error, text, failed)


def _outputs(step: Step) -> list[list[JsonValue]]:
    """Return the tool outputs of each call of the executed candidate: see
    `loopline.agents.roles`."""
    turns = step.observation.get("turns")
    if not isinstance(turns, list):
        return []
    return [turn if isinstance(turn, list) else [] for turn in turns]
