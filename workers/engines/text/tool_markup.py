"""Tool calls written in text, in the markup of Qwen and Hermes models:

    <tool_call>
    {"name": "calculate", "arguments": {"expression": "3*4"}}
    </tool_call>

Whatever stands between the tags is hostile until it has been parsed: a call that is not valid
becomes a `ToolCall` with `arguments=None` and an `error` that the model can be told.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from agents.records import ToolCall
from agents.tools.json_arguments import parse_arguments

OPEN = "<tool_call>"
CLOSE = "</tool_call>"


def parse_tool_calls(text: str, *, id_seed: str) -> tuple[ToolCall, ...]:
    """Every call in `text`, in order. Ids are a function of `id_seed` and the position, so that
    a replay gives the same ids. An opening tag without its closing one is a call with an error.
    """
    calls: list[ToolCall] = []
    position = text.find(OPEN)
    while position >= 0:
        start = position + len(OPEN)
        end = _end_of_call(text, start)
        call_id = tool_call_id(id_seed, len(calls))
        if end < 0:
            calls.append(_broken(call_id, text[start:], f"the call was cut off before {CLOSE}"))
            break
        calls.append(_parse_call(call_id, text[start:end]))
        position = text.find(OPEN, end)
    return tuple(calls)


def without_tool_calls(text: str) -> str:
    """The words around the calls; an unclosed call is dropped to the end of the text."""
    kept: list[str] = []
    position = 0
    while (start := text.find(OPEN, position)) >= 0:
        kept.append(text[position:start])
        end = _end_of_call(text, start + len(OPEN))
        if end < 0:
            return "".join(kept).strip()
        position = end + len(CLOSE)
    kept.append(text[position:])
    return "".join(kept).strip()


def _end_of_call(text: str, start: int) -> int:
    """Where the closing tag stands of the call that begins at `start`; -1 without one. A tag in a
    string of the call's JSON closes nothing."""
    try:
        _, end = _DECODER.raw_decode(text, _after_blanks(text, start))
    except (ValueError, RecursionError):
        return text.find(CLOSE, start)
    end = _after_blanks(text, end)
    return end if text.startswith(CLOSE, end) else text.find(CLOSE, start)


_DECODER = json.JSONDecoder()


def _after_blanks(text: str, position: int) -> int:
    while position < len(text) and text[position] in " \t\r\n":
        position += 1
    return position


def write_tool_call(name: str, arguments: Mapping[str, object]) -> str:
    """The markup of one call."""
    body = json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)
    return f"{OPEN}\n{body}\n{CLOSE}"


def tool_call_id(id_seed: str, position: int) -> str:
    """A stable id: within the 40 characters that OpenAI allows when it is fed back."""
    return "call_" + hashlib.blake2b(f"{id_seed}#{position}".encode(), digest_size=12).hexdigest()


def _parse_call(call_id: str, raw: str) -> ToolCall:
    body, error = parse_arguments(raw)
    if body is None:
        return _broken(call_id, raw, (error or "").replace("the arguments", "the call", 1))
    name = body.get("name")
    if not isinstance(name, str) or not name:
        return _broken(call_id, raw, "the call has no name")
    arguments = body.get("arguments")
    raw_arguments = json.dumps(arguments, ensure_ascii=False)
    if not isinstance(arguments, dict):
        message = f"the arguments must be a JSON object, not {type(arguments).__name__}"
        return ToolCall(
            id=call_id, name=name, arguments=None, raw_arguments=raw_arguments, error=message
        )
    return ToolCall(id=call_id, name=name, arguments=arguments, raw_arguments=raw_arguments)


def _broken(call_id: str, raw: str, error: str) -> ToolCall:
    return ToolCall(id=call_id, name="", arguments=None, raw_arguments=raw.strip(), error=error)
