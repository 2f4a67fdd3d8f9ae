"""Inputs of the three roles: the tools and the history, in α-UMi's published form.

    user: Weather in Oslo?</s>assistant: I look it up.
     Next: caller.</s>caller: Action: weather
    Action Input: {"city": "Oslo"}</s>observation: {"sky": "rain"}</s>assistant:

A turn is `role: text</s>`, and an input ends with the tag of the role whose turn it is. The labels
are the published ones: the planner is called `assistant` and the summarizer `conclusion`. Unlike in
the published format, an observation also ends with `</s>`: a tool's output must not be able to
start a turn.

This text goes into a user message, where engines break up their model's control tokens. Here,
`</s>` within a turn is broken up more broadly than in an engine, so that a turn's end can't be
forged before that either.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import JsonValue

from loopline.agents.records import JsonObject, Step, Task, ToolCall, ToolSpec
from loopline.agents.roles.conversation import whole_tool_text
from loopline.agents.roles.umi.output import format_call, format_plan

Label = Literal["user", "assistant", "caller", "observation", "conclusion"]
ToolStyle = Literal["documents", "signatures"]

END_OF_TURN = "</s>"
MAX_DESCRIPTION_CHARS = 256
"""Maximum number of characters of a description of a tool or of a parameter."""

CALLING = ("umi_caller", "umi_single")
"""Roles whose steps call tools."""

_LIKE_AN_END = re.compile(r"<\s*/\s*s\s*>", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn of the history."""

    label: Label
    text: str


def planner_input(tools: Sequence[ToolSpec], turns: Iterable[Turn], style: ToolStyle) -> str:
    """Input of the planner."""
    return f"{_tools_and_history(tools, turns, style)}\nassistant:"


def caller_input(tools: Sequence[ToolSpec], turns: Sequence[Turn], style: ToolStyle) -> str:
    """Input of the caller: the history, and the planner's last turn once more."""
    thought = escape_turn_ends(turns[-1].text)
    return f"{_tools_and_history(tools, turns, style)}\nThought:\n{thought}\ncaller:"


def summarizer_input(turns: Iterable[Turn]) -> str:
    """Input of the summarizer: no tools, since it does not choose among them."""
    return f"History:\n{history_text(turns)}\nconclusion:"


def _tools_and_history(tools: Sequence[ToolSpec], turns: Iterable[Turn], style: ToolStyle) -> str:
    return f"Tools:\n{tools_text(tools, style)}\nHistory:\n{history_text(turns)}"


def history_text(turns: Iterable[Turn]) -> str:
    """The turns, one after another."""
    return "".join(f"{turn.label}: {escape_turn_ends(turn.text)}{END_OF_TURN}" for turn in turns)


def escape_turn_ends(text: str) -> str:
    """The text with everything broken up that could be read as the end of a turn."""
    return _LIKE_AN_END.sub("< / s >", text)


def tools_text(tools: Sequence[ToolSpec], style: ToolStyle) -> str:
    """One line for each tool: its document as JSON, or the shorter signature."""
    if style == "signatures":
        # The worlds are large, and most runs do not use them.
        from loopline.agents.environments.api_worlds import compact_documentation

        return escape_turn_ends(compact_documentation(tools))
    return escape_turn_ends("\n".join(json.dumps(document_tool(tool)) for tool in tools))


def document_tool(tool: ToolSpec) -> JsonObject:
    """α-UMi's form of a tool: `Name`, `function`, and `input` by parameter.

    Unlike the published documents, this also states choices and optional parameters.
    """
    properties, required = tool.parameters.get("properties"), tool.parameters.get("required")
    needed = required if isinstance(required, list) else []
    return {
        "Name": tool.name,
        "function": tool.description[:MAX_DESCRIPTION_CHARS],
        "input": {
            name: _parameter(schema, optional=name not in needed)
            for name, schema in (properties.items() if isinstance(properties, dict) else ())
        },
    }


def _parameter(schema: JsonValue, *, optional: bool) -> str:
    definition = schema if isinstance(schema, dict) else {}
    kind, choices, description = (
        definition.get("type"),
        definition.get("enum"),
        definition.get("description"),
    )
    parts = [kind if isinstance(kind, str) else "any"]
    if isinstance(choices, list):
        parts.append(f"one of {json.dumps(choices, ensure_ascii=False)}")
    if optional:
        parts.append("optional")
    if isinstance(description, str):
        # The end of the description, as in the published documents: it contains examples.
        parts.append(description[-MAX_DESCRIPTION_CHARS:])
    return ", ".join(parts)


def asked_turns(task: Task) -> list[Turn]:
    """Turns that start a history: the caller's conversation up to its question. System messages are
    not included: they follow the role's own."""
    turns: list[Turn] = []
    for message in task.messages:
        text = message.content
        match message.role:
            case "user":
                turns.append(Turn("user", text))
            case "assistant":
                turns += [Turn("conclusion", text)] if text else []
                for call in message.tool_calls:
                    turns.append(Turn("caller", format_call(call.name, call.arguments or {})))
            case "tool":
                turns.append(Turn("observation", text))
            case "system":
                pass
    return turns or [Turn("user", task.prompt)]


def step_turns(journal: Iterable[Step], observation_chars: int) -> list[Turn]:
    """Turns that the steps of a run add to its history."""
    turns: list[Turn] = []
    for step in sorted(journal, key=lambda step: step.turn):
        data = step.decision.data
        match step.agent, step.decision.kind:
            case "umi_planner", ("call" | "conclude" | "give_up") as kind:
                turns.append(Turn("assistant", format_plan(_text(data.get("rationale")), kind)))
            case "umi_caller", "call":
                name, arguments = _text(data.get("name")), data.get("arguments")
                call_arguments = arguments if isinstance(arguments, dict) else {}
                turns.append(Turn("caller", format_call(name, call_arguments)))
                turns.append(Turn("observation", observation_of(step, observation_chars)))
            case "umi_caller", "refused":
                turns.append(Turn("caller", _text(data.get("text"))))
                turns.append(Turn("observation", observation_of(step, observation_chars)))
            case "umi_summarizer", "answer":
                turns.append(Turn("conclusion", _text(data.get("answer"))))
            case "umi_single", ("call" | "refused"):
                turns.append(Turn("assistant", _single_text(step)))
                turns.append(Turn("observation", observation_of(step, observation_chars)))
            case _:
                pass
    return turns


def calls_of(journal: Iterable[Step]) -> tuple[ToolCall, ...]:
    """The calls that were run, in order."""
    return tuple(
        ToolCall(
            id=f"call-{step.turn}",
            name=_text(step.decision.data.get("name")),
            arguments=arguments,
            raw_arguments=json.dumps(arguments, ensure_ascii=False),
        )
        for step in sorted(journal, key=lambda step: step.turn)
        if step.agent in CALLING
        and step.decision.kind == "call"
        and isinstance(arguments := step.decision.data.get("arguments"), dict)
    )


def observation_of(step: Step, limit: int) -> str:
    """Observation of a caller's step: at most `limit` characters, and a note if it was
    truncated."""
    match step.observation:
        case {"turns": [[{"output": output}]]}:
            return observation_text(output, limit)
        case _:
            return ""


def observation_text(output: JsonValue, limit: int) -> str:
    """A tool's output as the planner reads it. A text that was truncated, here or by the tool
    worker, states its full length."""
    match output:
        case {"result": str(text), "truncated": True, "full_chars": int(whole)}:
            total = whole
        case _:
            text = whole_tool_text(output)
            total = len(text)
    prefix = text[:limit]
    if len(prefix) == total:
        return text
    return f"{prefix} [truncated: the first {len(prefix)} of {total} characters]"


def _text(value: JsonValue) -> str:
    return value if isinstance(value, str) else ""


def _single_text(step: Step) -> str:
    """The single model's turn: thought and call."""
    data = step.decision.data
    if step.decision.kind == "refused":
        return _text(data.get("text"))
    arguments, rationale = data.get("arguments"), _text(data.get("rationale"))
    call_arguments = arguments if isinstance(arguments, dict) else {}
    written = format_call(_text(data.get("name")), call_arguments)
    return f"{rationale}\n{written}" if rationale else written
