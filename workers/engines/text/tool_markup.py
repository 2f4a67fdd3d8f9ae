"""Tool calls in text. It reads every markup that `loopline.agents.call_markup` supports, and writes
the markup of Qwen and Hermes models:

    <tool_call>
    {"name": "calculate", "arguments": {"expression": "3*4"}}
    </tool_call>

Markup is untrusted until it has been parsed: an invalid call becomes a `ToolCall` with
`arguments=None` and an `error` that can be shown to the model.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence

from loopline.agents.call_markup import CLOSE, OPEN, strip_calls, written_calls
from loopline.agents.records import ToolCall, ToolSpec
from loopline.workers.engines.protocol import GenerateRequest

__all__ = [
    "CLOSE",
    "OPEN",
    "calls_of",
    "parse_tool_calls",
    "strip_tool_calls",
    "tool_call_id",
    "write_tool_call",
]


def parse_tool_calls(
    text: str, *, id_seed: str, tools: Sequence[ToolSpec] = (), opened: bool = False
) -> tuple[ToolCall, ...]:
    """Every call in a model's text, in order; calls inside its thoughts don't count (`opened`: see
    `loopline.agents.thinking.split_thoughts`). Ids are a function of `id_seed` and the position, so
    that a replay gets the same ids. An opening tag without a closing one is a call with an error,
    unless a complete call follows it. `tools`, those on offer, are needed for calls without
    markup."""
    offered = {tool.name: tool.parameters for tool in tools}
    return tuple(
        ToolCall(
            id=tool_call_id(id_seed, position),
            name=call.name,
            arguments=call.arguments,
            raw_arguments=call.raw,
            error=call.error,
        )
        for position, call in enumerate(written_calls(text, offered, opened=opened))
    )


def calls_of(
    request: GenerateRequest, index: int, text: str, *, opened: bool = False
) -> tuple[ToolCall, ...]:
    """Calls of the offered tools in the text of completion `index`. Under a schema there is no
    markup: anything that looks like it is inside a JSON string. If only one call is allowed but no
    grammar enforces it, the first call counts."""
    if not request.callable_tools or request.json_schema is not None:
        return ()
    calls = parse_tool_calls(
        text, id_seed=f"{request.id}/{index}", tools=request.tools, opened=opened
    )
    return calls[:1] if request.single_call else calls


def strip_tool_calls(text: str) -> str:
    """The text around the calls; an unclosed call is dropped to the end of the text."""
    return strip_calls(text).strip()


def write_tool_call(name: str, arguments: Mapping[str, object]) -> str:
    """The markup of one call."""
    body = json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)
    return f"{OPEN}\n{body}\n{CLOSE}"


def tool_call_id(id_seed: str, position: int) -> str:
    """A stable id, within the 40 characters that OpenAI allows when it is sent back."""
    return "call_" + hashlib.blake2b(f"{id_seed}#{position}".encode(), digest_size=12).hexdigest()
