"""Output formats of the planner and the caller, and how they are parsed.

Parsing tolerates the models' usual deviations (different case, emphasis marks, code fences, text
that continues with the next role's turn), but its result is exact, or states the error.

The caller writes one of two formats with the same two parts:

    Action: weather                             as published
    Action Input: {"city": "Oslo"}

    {"Action": "weather", "Action Input": {"city": "Oslo"}}

The second format is one JSON value, so a schema can constrain the whole completion: `call_schema`
allows only the names of the offered tools, each with its own arguments.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from loopline.agents.records import JsonObject, ToolSpec
from loopline.agents.thinking import text_without_thoughts
from loopline.agents.tools.json_arguments import parse_arguments

Next = Literal["call", "conclude", "give_up"]
"""What the planner decides."""

_WORDS: dict[Next, str] = {"call": "caller", "conclude": "conclusion", "give_up": "give up"}
_END = "</s>"
_NEXT = re.compile(
    r"""(?xi)
    \bnext \W{0,8}? : [\s*_`"']*
    (?: (?P<call> caller\b)
      | (?P<conclude> (?: conclusion | conclude | summari[sz]er ) \b)
      | (?P<give_up> give [\s_-]? up \b)
    )
    """
)
_OWN_TAG = re.compile(
    r"^\s*(?:assistant|planner|caller|conclusion|summari[sz]er)\s*:\s*", re.IGNORECASE
)
# The mark of a line: not of the lines before it, which may be thousands of empty ones.
_ACTION = re.compile(r"(?im)^(?:[^\S\n]|[*_`#>])*+action[\s*_`]*:[ \t]*(?P<name>[^\n]*)$")
_INPUT = re.compile(r"(?im)^(?:[^\S\n]|[*_`#>])*+action[ _]input[\s*_`]*:[\s*_`]*(?:json\b)?\s*")
_AROUND_A_NAME = " \t\r*`'\".,;"
_DECODER = json.JSONDecoder()
_SHOWN_CHARS = 200


@dataclass(frozen=True, slots=True)
class PlannerTurn:
    """The planner's turn."""

    rationale: str
    next: Next


@dataclass(frozen=True, slots=True)
class Action:
    """A call that the caller wrote. The tool may not exist."""

    name: str
    arguments: JsonObject


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Why a text is not a valid turn of its role, as the writer is told."""

    reason: str


def read_plan(text: str) -> PlannerTurn | Unreadable:
    """The planner's rationale and its decision: the first `Next:` that names a role. Text after it
    is ignored."""
    body = text_without_thoughts(text).partition(_END)[0]
    match = _NEXT.search(body)
    if match is None:
        excerpt = " ".join(body.split())[-_SHOWN_CHARS:]
        return Unreadable(
            "its text names no next role (Next: caller, conclusion or give up)"
            + (f": …{excerpt}" if excerpt else ", it is empty")
        )
    before = body[: match.start()].rstrip().rstrip("*_`").rstrip()
    rationale = _OWN_TAG.sub("", before, count=1).strip()
    if match["call"]:
        return PlannerTurn(rationale, "call")
    return PlannerTurn(rationale, "conclude" if match["conclude"] else "give_up")


def format_plan(rationale: str, following: Next) -> str:
    """The planner's turn, in the published form."""
    return (
        f"{rationale}\n Next: {_WORDS[following]}." if rationale else f" Next: {_WORDS[following]}."
    )


def read_answer(text: str) -> str:
    """The summarizer's answer; empty if it wrote none."""
    return _OWN_TAG.sub("", text_without_thoughts(text).partition(_END)[0], count=1).strip()


def read_action(text: str) -> Action | Unreadable:
    """The caller's call, in either format."""
    body = _OWN_TAG.sub("", text_without_thoughts(text), count=1)
    action = _ACTION.search(body)
    if action is None:
        whole = _object_at(body, body.find("{"), "the call is")
        if isinstance(whole, dict) and "Action" in whole:
            return _action_from_object(whole)
        if isinstance(whole, str) and '"Action"' in body:
            return Unreadable(whole)
        return Unreadable("there is no line `Action: <name of a tool>`")
    name = action["name"].partition(_END)[0].strip(_AROUND_A_NAME)
    if not name:
        return Unreadable("`Action:` names no tool")
    match = _INPUT.search(body, action.end())
    if match is None:
        return Unreadable("there is no line `Action Input: <JSON object>`")
    arguments = _object_at(body, match.end(), "the arguments are")
    if isinstance(arguments, str):
        return Unreadable(arguments)
    return Action(name, arguments)


def format_call(name: str, arguments: JsonObject, *, as_json: bool = False) -> str:
    """The caller's turn, in the published form or as the JSON value that `call_schema` accepts."""
    if as_json:
        return json.dumps({"Action": name, "Action Input": arguments}, ensure_ascii=False)
    return f"Action: {name}\nAction Input: {json.dumps(arguments, ensure_ascii=False)}"


def call_schema(tools: Sequence[ToolSpec]) -> JsonObject:
    """The JSON schema for a call of one of the tools (at least one)."""
    calls = [_schema_of(tool) for tool in tools]
    return calls[0] if len(calls) == 1 else {"anyOf": [*calls]}


def _schema_of(tool: ToolSpec) -> JsonObject:
    return {
        "type": "object",
        "properties": {
            "Action": {"type": "string", "enum": [tool.name]},
            "Action Input": {"type": "object", **tool.parameters},
        },
        "required": ["Action", "Action Input"],
        "additionalProperties": False,
    }


def _action_from_object(whole: JsonObject) -> Action | Unreadable:
    name, arguments = whole.get("Action"), whole.get("Action Input")
    if not isinstance(name, str) or not name.strip():
        return Unreadable("`Action` names no tool")
    if not isinstance(arguments, dict):
        return Unreadable("`Action Input` must be a JSON object")
    return Action(name.strip(), arguments)


def _object_at(text: str, start: int, this_is: str) -> JsonObject | str:
    """The JSON object that starts there, whatever follows it, or its error."""
    if start < 0 or not text.startswith("{", start):
        return "`Action Input` must be a JSON object in braces"
    try:
        _, end = _DECODER.raw_decode(text, start)
    except (ValueError, RecursionError) as error:
        return f"{this_is} not valid JSON: {error}"
    arguments, trouble = parse_arguments(text[start:end])
    return arguments if arguments is not None else str(trouble)
