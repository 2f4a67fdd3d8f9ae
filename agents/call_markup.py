"""Find tool calls in a model's text, in the markup of its model family.

A server with a parser for its model returns calls in a separate field; a server without one returns
the model's raw text. This module recognizes the markup that the parsers of vLLM, SGLang and
llama.cpp read, and the forms in which servers corrupt it. It also recognizes text that consists
only of a call in JSON or Python syntax, if a tool with that name is offered.

The content of markup is a call or an error that the model can be told; it is never an answer.
Markup within a thought does not count (`loopline.agents.thinking`). Every scan is linear in the
text.
"""

from __future__ import annotations

import bisect
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from loopline.agents.call_forms import (
    CALLED,
    FENCED,
    MAX_CALLS,
    Offered,
    WrittenCall,
    broken_call,
    call_from_json_arguments,
    calls_in_json,
    json_value,
    marked_calls,
    parse_error,
    python_calls,
    split_at_marks,
)
from loopline.agents.call_values import own_tags
from loopline.agents.thinking import BARE_CHANNEL, ends_thought, split_thoughts

__all__ = [
    "BARE_PREFIXES", "CLOSE", "ENDS", "INCLUSIVE", "NONE", "OPEN", "OPENING", "REGIONS", "SECTION",
    "STRAY_ENDS", "Offered", "WrittenCall", "calls_in_json", "strip_calls", "written_calls",
]  # fmt: skip

OPEN = "<tool_call>"
CLOSE = "</tool_call>"
"""The markup that this project writes (`loopline.workers.engines.text.tool_markup`)."""

# DeepSeek's marks have full-width bars; servers and fine-tuned models also write them doubled or in
# ASCII, and Step uses plain underscores.
_MARKED = {
    f"<{bar}{tag.replace('_', space)}_begin{bar}>".replace("_begin", f"{space}begin"):
    f"<{bar}{tag.replace('_', space)}_end{bar}>".replace("_end", f"{space}end")
    for tag in ("tool_calls", "tool_call")
    for bar in "｜|"
    for space in "▁_"
}  # fmt: skip
_NAMESPACES = ("｜DSML｜", "｜｜DSML｜｜", "|DSML|", "||DSML||", "｜GCML｜", "antml:")
_NAMESPACED = {
    f"<{prefix}{tag}>": f"</{prefix}{tag}>"
    for prefix in _NAMESPACES
    for tag in ("function_calls", "tool_calls")
}
_INVOKED = {f'<{prefix}invoke name="': f"</{prefix}invoke>" for prefix in ("", *_NAMESPACES)}
REGIONS: Mapping[str, str | None] = {
    OPEN: CLOSE,
    "<tool_calls>": "</tool_calls>",
    "<TOOLCALL>": "</TOOLCALL>",
    "<function_call>": "</function_call>",
    "<function_calls>": "</function_calls>",
    "<functioncall>": "</functioncall>",
    "<minimax:tool_call>": "</minimax:tool_call>",
    "]<]minimax[>[<tool_call>": "]<]minimax[>[</tool_call>",
    "<seed:tool_call>": "</seed:tool_call>",
    "<longcat_tool_call>": "</longcat_tool_call>",
    "<dots_function_call>": "</dots_function_call>",
    "<tool_calls:opensource>": "</tool_calls:opensource>",
    "<tool_call:opensource>": "</tool_call:opensource>",
    "<ifm|tool_calls>": "</ifm|tool_calls>",
    "<ifm|tool_call>": "</ifm|tool_call>",
    **_NAMESPACED,
    **_MARKED,
    "<|tool_calls_section_begin|>": "<|tool_calls_section_end|>",
    "<|tool_call_section_begin|>": "<|tool_call_section_end|>",
    "<|tool_call_begin|>": "<|tool_call_end|>",
    "<|tool_call_start|>": "<|tool_call_end|>",
    "<|action_start|>": "<|action_end|>",
    "<|START_ACTION|>": "<|END_ACTION|>",
    "<|tool_call>": "<tool_call|>",
    "<start_function_call>": "<end_function_call>",
    "<|tools_prefix|>": "<|tools_suffix|>",
    "<|plamo:begin_tool_requests:plamo|>": "<|plamo:end_tool_requests:plamo|>",
    "<|open|>tools<|sep|>": "<|close|>tools<|sep|>",
    "<|content_invoke_tool_json|>": "<|end_message|>",
    "[unused11][": "][unused12]",
    "<|tool_call:begin|>": "<|tool_call:end|>",
    "<function=": "</function>",
    '<function name="': "</function>",
    **_INVOKED,
    # Up to the end of the turn.
    "[TOOL_CALLS]": None,
    "<|python_tag|>": None,
    "<|python_start|>": None,
    "<|tool_call|>": None,
    "<|function_call|>": None,
    "function call<|role_sep|>": None,
    "-> tool/function_call": None,
}
"""End of each markup, by its start."""
INCLUSIVE = frozenset(
    {"<function=", '<function name="', "<|tool_call_begin|>", *_INVOKED}
    | {opening for opening in _MARKED if "call▁b" in opening or "call_b" in opening}
)
"""Starts that are part of the call that they start."""
ENDS = tuple(sorted({end for start, end in REGIONS.items() if end and start not in INCLUSIVE}))
"""Ends of markup that may hold several calls. One without its start may follow a call: Qwen3-Coder
and DeepSeek often leave the start out."""
STRAY_ENDS = re.compile(rf"(?:\s*(?:{'|'.join(map(re.escape, ENDS))}))+")
# After a backtick, it is quoted.
OPENING = re.compile(f"(?<!`)(?:{'|'.join(map(re.escape, REGIONS))})")
_END_OF_TURN = re.compile(
    r"(?:<\|(?:eom_id|eot_id|eot|im_end|end_of_text|endoftext|python_end|/tool_call|end|return"
    r"|END_OF_TURN_TOKEN)\|>|</s>|<end_of_turn>|<turn\|>|\[\|endofturn\|\]"
    r"|\[/TOOL_CALLS\]|<｜end▁of▁sentence｜>|<bot_end>|<end_code>"
    r"|</(?:tool_call|tools|TOOLCALL)>)\s*\Z"
)
_CHANNEL_CALL = re.compile(
    r"(?:<\|channel\|>[^<]{0,100}?(?:<\|constrain\|>[^<]{0,100}?)?|<\|start\|>assistant|\A)"
    r"\s?\bto=(?:functions\.)?(?P<name>[\w.-]{1,100})[^<]{0,100}"
    r"(?:<\|(?:channel|constrain)\|>[^<]{0,100}){0,3}<\|message\|>"
)
_CHANNEL_END = re.compile(r"<\|(?:call|end|return|start|channel)\|>")
BARE_PREFIXES = (
    "functools", "Action:", "Call:", "<<function>>", "<tools>",
    "<|start_header_id|>assistant<|end_header_id|>",
)  # fmt: skip
"""Words of Phi, Cohere, NexusRaven, Gorilla, Qwen and Llama before calls that form a whole text."""
_GLUED_CALL = re.compile(
    r"(?:analysis|commentary) ?to=(?:functions\.)?(?P<name>[\w.-]{1,100}?) ?(?:json|code)?(?=\{)"
)
SECTION = re.compile(r"(?m)^>>>(?P<name>[\w.-]{1,100})\n")
_VALUE_TAG = re.compile(r"<(?P<closes>/?)[^\s<>/]{0,20}?(?:param(?:eter)?|arg_value)(?=[\s=>:])")
_FENCE = re.compile(r"(?m)^[ \t]{0,8}(?:```|~~~)(?P<info>[^\n`]*)$")

NONE: Offered = {}


@dataclass(frozen=True, slots=True)
class _Region:
    start: int
    end: int
    body: str
    cut: str | None = None
    """Missing end of the markup; None if it is complete."""
    name: str = ""
    """Name of the tool, if the markup states it outside its body."""
    opening: str = ""
    """Start of the markup."""


def written_calls(text: str, tools: Offered = NONE, *, opened: bool = False) -> list[WrittenCall]:
    """All calls in a model's text, in order. A call without markup is read only if a tool with its
    name is offered. `opened`: see `loopline.agents.thinking.split_thoughts`."""
    channels = _channel_regions(text)
    if channels:
        return list(_calls(channels, tools))
    whole = split_thoughts(text, opened=opened)
    spoken = whole.visible
    regions = _regions(spoken, tools)
    calls = list(_calls(regions, tools)) if regions else _bare_calls(spoken, tools)
    if not calls and whole.spans and whole.spans[-1][1] == len(text) and not spoken.strip():
        return _calls_after_thought(text[whole.spans[-1][0] :], tools)
    return calls


def _calls_after_thought(thought: str, tools: Offered) -> list[WrittenCall]:
    """Complete calls at the end of an unclosed thought, and the text: Qwen3.5 and Kimi K2 go from a
    thought directly to a call."""
    if ends_thought(thought):
        return []
    regions = _regions(thought, tools)
    if not regions or regions[-1].cut is not None or not _is_end(thought[regions[-1].end :]):
        return []
    begin = len(regions) - 1
    while begin and not thought[regions[begin - 1].end : regions[begin].start].strip():
        begin -= 1
    calls = list(_calls(regions[begin:], tools))
    return calls if all(call.arguments is not None for call in calls) else []


def _is_end(text: str) -> bool:
    return not _END_OF_TURN.sub("", text).strip()


def _calls(regions: Sequence[_Region], tools: Offered) -> Iterator[WrittenCall]:
    every = (call for region in regions for call in _calls_in(region, tools))
    return itertools.islice(every, MAX_CALLS)


def strip_calls(
    text: str, tools: Offered = NONE, *, quoted: bool = False, opened: bool = False
) -> str:
    """The text around the calls; an unclosed call is dropped up to the end of the text. With
    `quoted`, markup in a code block is an example and stays."""
    spoken = split_thoughts(text, opened=opened).visible
    regions = _regions(spoken, tools)
    if quoted:
        blocks = _blocks(spoken)
        regions = [region for region in regions if not _is_inside(region.start, blocks)]
    if not regions:
        return "" if _bare_calls(spoken, tools) else spoken
    pieces = [spoken[: regions[0].start].rstrip()]
    ends = [*(region.start for region in regions[1:]), len(spoken)]
    pieces += [spoken[region.end : end].strip() for region, end in zip(regions, ends, strict=True)]
    # On separate lines: the texts on the two sides of a call were not one sentence or equation.
    return "\n".join(filter(None, pieces))


def _is_inside(position: int, blocks: Sequence[tuple[int, int]]) -> bool:
    place = bisect.bisect_right(blocks, position, key=lambda block: block[0]) - 1
    return place >= 0 and position < blocks[place][1]


def _regions(text: str, tools: Offered) -> list[_Region]:
    regions: list[_Region] = []
    endings = _Endings(text)
    opening = OPENING.search(text)
    while opening is not None:
        region = _region_at(text, opening, endings)
        regions.append(region)
        opening = OPENING.search(text, max(region.end, opening.end()))
    if regions:
        return regions
    sections = split_at_marks(
        [match for match in SECTION.finditer(text) if match["name"] in tools], text
    )
    return [
        _Region(match.start(), match.end() + len(body), body, name=match["name"])
        for match, body in sections
    ]


def _region_at(text: str, opening: re.Match[str], endings: _Endings) -> _Region:
    start, closing = opening.end(), REGIONS[opening[0]]
    if closing is None:
        following = text.find(opening[0], start)
        end = len(text) if following < 0 else following
        body = _END_OF_TURN.sub("", text[start:end])
        return _Region(opening.start(), end, body, opening=opening[0])
    if opening[0] in INCLUSIVE:
        start = opening.start()
    end = endings.after(start, closing)
    if end < 0:
        return _Region(opening.start(), len(text), text[start:], cut=closing, opening=opening[0])
    body, end = text[start:end], end + len(closing)
    stray = STRAY_ENDS.match(text, end)
    end = end if stray is None else stray.end()
    return _Region(opening.start(), end, body, opening=opening[0])


class _Endings:
    """Finds the ends of calls. An end mark within a string of a call's JSON or within the tags of a
    value is ignored; if the call is then invalid, the first end mark counts. The number of repeated
    scans is limited, because a text of broken calls would otherwise take quadratic time."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._left = 4 * len(text) + 10_000

    def after(self, start: int, closing: str) -> int:
        """Position of the end mark of the call that starts at `start`; -1 if there is none."""
        first = self._text.find(closing, start)
        if first < 0:
            return first
        end = self._after_values(start, first, closing)
        if end != first or self._left <= 0 or '"' not in self._text[start:first]:
            return end
        outside = re.compile(rf'"(?:[^"\\]|\\.)*+(?:"|\Z)|(?P<end>{re.escape(closing)})', re.DOTALL)
        for piece in outside.finditer(self._text, start):
            if piece["end"] is None:
                continue
            if piece.start() == first:
                return first
            self._left -= piece.end() - start
            whole = json_value(self._text[start : piece.start()])
            return first if whole is None else piece.start()
        self._left -= len(self._text) - start
        return first

    def _after_values(self, start: int, first: int, closing: str) -> int:
        """Position of the first end mark from `first` that isn't within the tags of a value; -1 if
        there is none. If such a value has no end tag, the first end mark counts."""
        end = first
        while end >= 0 and self._left > 0 and ends_in_value(self._text, start, end):
            tag = _VALUE_TAG.search(self._text, end)
            self._left -= (len(self._text) if tag is None else tag.end()) - start
            if tag is None or not tag["closes"]:
                return first
            end = self._text.find(closing, tag.end())
        return end


def ends_in_value(text: str, start: int, end: int) -> bool:
    """Whether `end` is within the tags of a value of the call that starts at `start`, as in a file
    about calls that a call writes."""
    if text[start:end].lstrip()[:1] in ("{", "["):
        return False
    return own_tags(text, NONE, start, end).is_open


def _channel_regions(text: str) -> list[_Region]:
    """Regions in the markup of gpt-oss: messages to a function."""
    regions: list[_Region] = []
    if BARE_CHANNEL.match(text):
        # From a server that leaves out control tokens.
        for glued in _GLUED_CALL.finditer(text):
            end = text.find("assistant", glued.end())
            end = len(text) if end < 0 or text.startswith("}", end) else end
            regions.append(_Region(glued.start(), end, text[glued.end() : end], name=glued["name"]))
        return regions
    for header in _CHANNEL_CALL.finditer(text):
        ended = _CHANNEL_END.search(text, header.end())
        end = len(text) if ended is None else ended.start()
        body = text[header.end() : end]
        regions.append(_Region(header.start(), end, body, name=header["name"]))
    return regions


def _blocks(text: str) -> list[tuple[int, int]]:
    """The fenced blocks of code."""
    spans: list[tuple[int, int]] = []
    opened: int | None = None
    for fence in _FENCE.finditer(text):
        if opened is None or fence["info"].strip():
            opened = fence.start()
        else:
            spans.append((opened, fence.end()))
            opened = None
    return spans


def _calls_in(region: _Region, tools: Offered, depth: int = 0) -> list[WrittenCall]:
    body = region.body.strip().removeprefix("<|plugin|>").strip()
    if region.cut is not None:
        return _calls_without_end(region, body, tools)
    if region.name:
        return [call_from_json_arguments(region.name, body)]
    fenced = FENCED.match(body)
    if fenced is not None:
        body = fenced["body"].strip()
    inner = OPENING.match(body) if depth < 2 else None
    if inner is not None and inner[0] not in INCLUSIVE:
        regions = _regions(body, tools)
        return [call for part in regions for call in _calls_in(part, tools, depth + 1)]
    calls = list(marked_calls(body, tools))
    return (
        calls
        or calls_in_json(body, named_by_key=region.opening == "<|tools_prefix|>")
        or python_calls(body, objects=True)
        or [broken_call(body, parse_error(body))]
    )


def _calls_without_end(region: _Region, body: str, tools: Offered) -> list[WrittenCall]:
    """Calls whose markup has no end mark. Granite writes none, and a server may drop it as its stop
    word: complete calls count as calls, as do calls with marks of their own within a list (Kimi,
    DeepSeek). Others were truncated."""
    inner = OPENING.match(body)
    if inner is not None and inner[0] not in (region.opening, OPEN):
        calls = list(_calls(_regions(body, tools), tools))
        if all(call.arguments is not None for call in calls):
            return calls
    calls: list[WrittenCall] = []
    for part in _END_OF_TURN.sub("", body).split(region.opening):
        if part.strip():
            calls += calls_in_json(part.strip()) or [broken_call(body, "")]
    if calls and all(call.arguments is not None for call in calls):
        return calls
    return [broken_call(body, f"the call was cut off before {region.cut}")]


def _bare_calls(text: str, tools: Offered) -> list[WrittenCall]:
    """Calls in a text that consists only of calls of offered tools, without any markup."""
    body = _END_OF_TURN.sub("", text.strip()).strip()
    if not tools or not body:
        return []
    for prefix in BARE_PREFIXES:
        if body.startswith(prefix):
            body = body.removeprefix(prefix).strip()
            break
    fenced = FENCED.match(body)
    body = fenced["body"].strip() if fenced else body
    line, _, arguments = body.partition("\n")
    if line in tools and arguments.lstrip().startswith("{"):  # GLM-4
        call = call_from_json_arguments(line, arguments)
        return [call] if call.arguments is not None else []
    if body[:1] not in ("{", "[") and not CALLED.match(body):
        return []
    calls = calls_in_json(body) or python_calls(body)
    return calls if all(call.name in tools for call in calls) else []
