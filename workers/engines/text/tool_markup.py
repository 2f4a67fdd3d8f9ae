"""Tool calls written in text: those of every markup that `loopline.agents.call_markup` reads, and
what this project writes itself, the markup of Qwen and Hermes models:

    <tool_call>
    {"name": "calculate", "arguments": {"expression": "3*4"}}
    </tool_call>

Whatever stands in a markup is hostile until it has been parsed: a call that is not valid becomes a
`ToolCall` with `arguments=None` and an `error` that the model can be told.
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
    """Every call that a model's text makes, in order; those that it only thought of are none
    (`opened`: see `loopline.agents.thinking.split_thoughts`). Ids are a function of `id_seed` and
    the position, so that a replay gives the same ids. An opening tag without its closing one is a
    call with an error, unless what stands behind it is a whole call. `tools`, those on offer, are
    needed for calls that have no markup.
    """
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
    """Calls that the text of completion `index` makes of the tools that were offered. Under a
    schema there is no markup: what looks like one stands within a JSON string. Of several calls in
    a markup that no grammar holds, where one is allowed, the first one counts."""
    if not request.callable_tools or request.json_schema is not None:
        return ()
    calls = parse_tool_calls(
        text, id_seed=f"{request.id}/{index}", tools=request.tools, opened=opened
    )
    return calls[:1] if request.single_call else calls


def strip_tool_calls(text: str) -> str:
    """The words around the calls; an unclosed call is dropped to the end of the text."""
    return strip_calls(text).strip()


def write_tool_call(name: str, arguments: Mapping[str, object]) -> str:
    """The markup of one call."""
    body = json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)
    return f"{OPEN}\n{body}\n{CLOSE}"


def tool_call_id(id_seed: str, position: int) -> str:
    """A stable id: within the 40 characters that OpenAI allows when it is fed back."""
    return "call_" + hashlib.blake2b(f"{id_seed}#{position}".encode(), digest_size=12).hexdigest()
