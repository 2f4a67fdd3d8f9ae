"""Tool calls in a model's text, in the markup of the model's family.

A server with a parser for its model returns calls in a separate field; a server without one returns
the model's text as it is. The markups of Hermes and Qwen, Llama, Mistral, DeepSeek, Kimi, GLM,
MiniMax, gpt-oss, Granite, Functionary, Phi, Cohere, LFM2, Olmo, Nemotron and InternLM are
recognized; and a text that is nothing but a call in JSON or in Python's syntax, where a tool of
that name is on offer.

The content of a markup is a call or an error that its writer can be told; it is never an answer. A
markup within a thought does not count (`loopline.agents.thinking`). Every scan is linear in the
text.
"""

from __future__ import annotations

import ast
import bisect
import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from loopline.agents.records import JsonObject
from loopline.agents.thinking import split_thoughts
from loopline.agents.tools.json_arguments import parse_arguments

OPEN = "<tool_call>"
CLOSE = "</tool_call>"
"""The markup that this project writes (`loopline.workers.engines.text.tool_markup`)."""

REGIONS: Mapping[str, str | None] = {
    OPEN: CLOSE,
    "<tool_calls>": "</tool_calls>",
    "<TOOLCALL>": "</TOOLCALL>",
    "<function_call>": "</function_call>",
    "<function_calls>": "</function_calls>",
    "<functioncall>": "</functioncall>",
    "<minimax:tool_call>": "</minimax:tool_call>",
    "<｜DSML｜function_calls>": "</｜DSML｜function_calls>",
    "<｜DSML｜tool_calls>": "</｜DSML｜tool_calls>",
    "<｜tool▁calls▁begin｜>": "<｜tool▁calls▁end｜>",
    "<|tool_calls_section_begin|>": "<|tool_calls_section_end|>",
    "<|tool_call_start|>": "<|tool_call_end|>",
    "<|action_start|>": "<|action_end|>",
    "<|START_ACTION|>": "<|END_ACTION|>",
    "<|tool_call>": "<tool_call|>",
    "<function=": "</function>",
    # Up to the end of the turn.
    "[TOOL_CALLS]": None,
    "<|python_tag|>": None,
    "<|tool_call|>": None,
}
"""End of each markup, by its beginning."""
OPENING = re.compile("|".join(map(re.escape, REGIONS)))
_END_OF_TURN = re.compile(r"(?:<\|(?:eom_id|eot_id|im_end|end_of_text|endoftext)\|>|</s>)\s*\Z")
_CHANNEL_CALL = re.compile(
    r"<\|channel\|>[^<]{0,100}? to=(?:functions\.)?(?P<name>[\w.-]{1,100})[^<]{0,100}"
    r"(?:<\|constrain\|>[^<]{0,100})?<\|message\|>"
    r"|<\|start\|>assistant to=(?:functions\.)?(?P<early>[\w.-]{1,100})<\|channel\|>[^<]{0,100}"
    r"(?:<\|constrain\|>[^<]{0,100})?<\|message\|>"
)
_CHANNEL_END = re.compile(r"<\|(?:call|end|return|start|channel)\|>")
SECTION = re.compile(r"(?m)^>>>(?P<name>[\w.-]{1,100})\n")
_FENCED = re.compile(
    r"\A```(?:json|python|tool_call|tool_code|xml)?[ \t]*\n(?P<body>.*)\n```\Z", re.DOTALL
)
_FENCE = re.compile(r"(?m)^[ \t]{0,8}(?:```|~~~)(?P<info>[^\n`]*)$")

_FUNCTION = re.compile(r"<function=(?P<name>[^>\s]{1,100})>")
_PARAMETER = re.compile(r"<parameter=(?P<name>[^>\s]{1,100})>\n?")
_INVOKE = re.compile(r"<(?P<tag>[^\s<>]{0,20}invoke) name=\"(?P<name>[^\"<>]{1,100})\">")
_INVOKED_WITH = re.compile(
    r"<(?P<tag>[^\s<>]{0,20}parameter) name=\"(?P<name>[^\"<>]{1,100})\"[^<>]{0,50}>"
)
_ARGUMENT = re.compile(r"<arg_key>(?P<name>[^<]{1,200})</arg_key>\s{0,20}<arg_value>")
_NAMED = re.compile(r"(?:call:)?(?P<name>[\w.-]{1,100}(?::[0-9]{1,4})?)\s{0,20}(?=\{)")
CALLED = re.compile(r"\A[\w.]{1,100}\(")
_DEEPSEEK = re.compile(r"<｜tool▁call▁begin｜>(?P<head>[^<]{0,200})<｜tool▁sep｜>")
_KIMI = re.compile(
    r"<\|tool_call_begin\|>\s{0,20}(?P<head>[^<]{1,200})<\|tool_call_argument_begin\|>"
)
_ARGUMENTS = ("arguments", "parameters", "args", "input")
_MAX_CALLED_CHARS = 20_000
"""Most characters of calls in Python's syntax: they are parsed as Python."""
DECODER = json.JSONDecoder()

Offered = Mapping[str, JsonObject]
"""The tools on offer: name → schema of the parameters."""
NONE: Offered = {}

MAX_CALLS = 1_000
"""Most calls of one text, far more than any role carries out; later ones are not read."""


@dataclass(frozen=True, slots=True)
class WrittenCall:
    """One call. `arguments` is None, and `error` says why, where it could not be read."""

    name: str
    arguments: JsonObject | None
    raw: str
    """Arguments as written, or all of a call that could not be read."""
    error: str | None = None


@dataclass(frozen=True, slots=True)
class _Region:
    start: int
    end: int
    body: str
    cut: str | None = None
    """Missing ending of the markup; None if it is complete."""
    name: str = ""
    """Name of the tool, where the markup states it outside its body."""


def written_calls(text: str, tools: Offered = NONE, *, opened: bool = False) -> list[WrittenCall]:
    """Every call in a model's text, in order. A call without a markup of its own is read only if a
    tool of its name is on offer. `opened`: see `loopline.agents.thinking.split_thoughts`."""
    channels = _channel_regions(text)
    if channels:
        return list(_calls(channels, tools))
    spoken = split_thoughts(text, opened=opened).visible
    regions = _regions(spoken, tools)
    if not regions:
        return _bare_calls(spoken, tools)
    return list(_calls(regions, tools))


def _calls(regions: Sequence[_Region], tools: Offered) -> Iterator[WrittenCall]:
    every = (call for region in regions for call in _calls_in(region, tools))
    return itertools.islice(every, MAX_CALLS)


def strip_calls(
    text: str, tools: Offered = NONE, *, quoted: bool = False, opened: bool = False
) -> str:
    """The text around the calls; an unclosed call is dropped to the end of the text. With `quoted`,
    a markup in a block of code is an example and stays."""
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
    # In lines of their own: the texts on both sides of a call were not one sentence, or equation.
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
    sections = _split_at_marks(
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
        return _Region(opening.start(), end, _END_OF_TURN.sub("", text[start:end]))
    if opening[0] == "<function=":
        start = opening.start()
    end = endings.after(start, closing)
    if end < 0:
        return _Region(opening.start(), len(text), text[start:], cut=closing)
    return _Region(opening.start(), end + len(closing), text[start:end])


class _Endings:
    """Finds where calls end. An ending in a string of a call's JSON ends nothing; where that makes
    no sense of the call, the first one counts. The number of repeated scans is bounded, or a text
    of broken calls would take quadratic time."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._left = 4 * len(text) + 10_000

    def after(self, start: int, closing: str) -> int:
        """Position of the ending of the call that begins at `start`; -1 without one."""
        first = self._text.find(closing, start)
        if first < 0 or self._left <= 0 or '"' not in self._text[start:first]:
            return first
        outside = re.compile(rf'"(?:[^"\\]|\\.)*+(?:"|\Z)|(?P<end>{re.escape(closing)})', re.DOTALL)
        for piece in outside.finditer(self._text, start):
            if piece["end"] is None:
                continue
            if piece.start() == first:
                return first
            self._left -= piece.end() - start
            whole = _json_value(self._text[start : piece.start()])
            return first if whole is None else piece.start()
        self._left -= len(self._text) - start
        return first


def _channel_regions(text: str) -> list[_Region]:
    """Regions in the markup of gpt-oss: messages to a function."""
    regions: list[_Region] = []
    for header in _CHANNEL_CALL.finditer(text):
        ended = _CHANNEL_END.search(text, header.end())
        end = len(text) if ended is None else ended.start()
        name = header["name"] or header["early"]
        regions.append(_Region(header.start(), end, text[header.end() : end], name=name))
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


def _calls_in(region: _Region, tools: Offered) -> list[WrittenCall]:
    body = region.body.strip().removeprefix("<|plugin|>").strip()
    if region.cut is not None:
        return [_broken_call(body, f"the call was cut off before {region.cut}")]
    if region.name:
        return [_call_from_json_arguments(region.name, body)]
    fenced = _FENCED.match(body)
    if fenced is not None:
        body = fenced["body"].strip()
    calls = list(_parse_marked_calls(body, tools))
    return (
        calls
        or calls_in_json(body)
        or _parse_python_calls(body)
        or [_broken_call(body, _parse_error(body))]
    )


def _parse_marked_calls(body: str, tools: Offered) -> Iterator[WrittenCall]:
    """Calls that have their own marks within the markup."""
    if body.startswith("<function="):
        for named, inner in _split_at_marks(_FUNCTION.finditer(body), body):
            inner = inner.partition("</function>")[0]
            values = {
                match["name"]: value.rpartition("</parameter>")[0].removesuffix("\n")
                for match, value in _split_at_marks(_PARAMETER.finditer(inner), inner)
            }
            if values or not inner.strip():
                yield _call_from_texts(named["name"], values, inner, tools)
            else:
                yield _call_from_json_arguments(named["name"], inner.strip())
    elif _INVOKE.match(body):
        for named, inner in _split_at_marks(_INVOKE.finditer(body), body):
            inner = inner.partition(f"</{named['tag']}>")[0]
            values = {
                match["name"]: value.rpartition(f"</{match['tag']}>")[0]
                for match, value in _split_at_marks(_INVOKED_WITH.finditer(inner), inner)
            }
            yield _call_from_texts(named["name"], values, inner, tools)
    elif _DEEPSEEK.match(body):
        for named, inner in _split_at_marks(_DEEPSEEK.finditer(body), body):
            inner = inner.partition("<｜tool▁call▁end｜>")[0].strip()
            name = named["head"].strip()
            if name == "function" and "\n" in inner:
                name, _, inner = inner.partition("\n")
            fenced = _FENCED.match(inner.strip())
            yield _call_from_json_arguments(
                name.strip(), (fenced["body"] if fenced else inner).strip()
            )
    elif _KIMI.match(body):
        for named, inner in _split_at_marks(_KIMI.finditer(body), body):
            inner = inner.partition("<|tool_call_end|>")[0]
            yield _call_from_json_arguments(named["head"].strip(), inner.strip())
    elif "[ARGS]" in body and "[" not in body[:1]:
        name, _, arguments = body.partition("[ARGS]")
        yield _call_from_json_arguments(name.partition("[CALL_ID]")[0].strip(), arguments.strip())
    elif "<arg_key>" in body:
        values = {
            match["name"].strip(): value.partition("</arg_value>")[0]
            for match, value in _split_at_marks(_ARGUMENT.finditer(body), body)
        }
        yield _call_from_texts(body.partition("<arg_key>")[0].strip(), values, body, tools)
    elif (named := _NAMED.match(body)) is not None:
        yield _call_from_json_arguments(named["name"], body[named.end() :])
    elif body in tools:
        yield WrittenCall(body, {}, "{}")


def _split_at_marks(
    marks: Iterable[re.Match[str]], text: str
) -> Iterator[tuple[re.Match[str], str]]:
    """Each mark with the text between it and the next one."""
    listed = list(marks)
    for match, following in itertools.zip_longest(listed, listed[1:]):
        if match is not None:
            yield match, text[match.end() : len(text) if following is None else following.start()]


def _call_from_texts(name: str, values: Mapping[str, str], raw: str, tools: Offered) -> WrittenCall:
    """A call with bare values: a text parameter takes them as they are, another one as JSON if they
    are JSON."""
    schemas: object = tools.get(name, {}).get("properties")
    arguments: dict[str, object] = {}
    for key, value in values.items():
        schema: object = schemas.get(key) if isinstance(schemas, dict) else None
        kind: object = (
            cast("dict[str, object]", schema).get("type") if isinstance(schema, dict) else None
        )
        read = None if kind == "string" else _json_value(value)
        arguments[key] = value if read is None else read[0]
    checked, error = parse_arguments(json.dumps(arguments, ensure_ascii=False))
    if checked is None:
        return WrittenCall(name, None, raw.strip(), error)
    return WrittenCall(name, checked, json.dumps(checked, ensure_ascii=False))


def _json_value(text: str) -> tuple[object] | None:
    try:
        return (json.loads(text),)
    except (ValueError, RecursionError):
        return None


def _call_from_json_arguments(name: str, raw: str) -> WrittenCall:
    """A call whose arguments are one JSON object."""
    name = re.sub(r"(?<=.):[0-9]{1,4}\Z", "", name).removeprefix("functions.")
    arguments, error = parse_arguments(raw or "{}")
    return WrittenCall(name, arguments, raw, error)


def calls_in_json(body: str) -> list[WrittenCall]:
    """Calls from consecutive objects, or lists of them; none for what is not JSON."""
    calls: list[WrittenCall] = []
    position = 0
    while position < len(body) and len(calls) < MAX_CALLS:
        try:
            value, end = DECODER.raw_decode(body, position)
        except (ValueError, RecursionError):
            return []
        values: list[object] = value if isinstance(value, list) else [value]
        if not values:
            return []
        calls += [_call_from_object(entry, body[position:end]) for entry in values]
        position = end
        while position < len(body) and body[position] in " \t\r\n;,":
            position += 1
    return calls


def _call_from_object(value: object, raw: str) -> WrittenCall:
    checked, error = parse_arguments(raw if isinstance(value, dict) else json.dumps(value))
    if not isinstance(value, dict) or (checked is None and error and "object" not in error):
        return _broken_call(raw, (error or "").replace("the arguments are", "the call is", 1))
    call = cast("dict[str, object]", value)
    inner = call.get("function")
    if isinstance(inner, dict):
        call = cast("dict[str, object]", inner)
    name = next(
        (n for k in ("name", "function", "tool_name") if isinstance(n := call.get(k), str)), ""
    )
    if not name:
        return _broken_call(raw, "the call has no name")
    arguments = next((call[key] for key in _ARGUMENTS if key in call), None)
    if isinstance(arguments, str) and parse_arguments(arguments)[0] is not None:
        return _call_from_json_arguments(name, arguments)
    written = json.dumps(arguments, ensure_ascii=False)
    if not isinstance(arguments, dict):
        error = f"the arguments must be a JSON object, not {type(arguments).__name__}"
        return WrittenCall(name, None, written, error)
    return _call_from_json_arguments(name, written)


def _parse_python_calls(body: str) -> list[WrittenCall]:
    """Calls in Python's syntax: one, a list of them, or one in each line."""
    if len(body) > _MAX_CALLED_CHARS or not (body.startswith("[") or CALLED.match(body)):
        return []
    try:
        tree = ast.parse(body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    calls: list[WrittenCall] = []
    for line in tree.body:
        if not isinstance(line, ast.Expr):
            return []
        values = line.value.elts if isinstance(line.value, ast.List | ast.Tuple) else [line.value]
        for value in values:
            call = _parse_python_call(value)
            if call is None:
                return []
            calls.append(call)
    return calls


def _parse_python_call(value: ast.expr) -> WrittenCall | None:
    if not isinstance(value, ast.Call):
        return None
    raw = ast.unparse(value)
    name = ast.unparse(value.func).removesuffix(".call")
    try:
        arguments = {keyword.arg: ast.literal_eval(keyword.value) for keyword in value.keywords}
        written = json.dumps(arguments, ensure_ascii=False, allow_nan=False)
    except (ValueError, TypeError, RecursionError, MemoryError):
        return WrittenCall(name, None, raw, "the arguments must be plain values")
    if value.args or None in arguments:
        return WrittenCall(name, None, raw, "the arguments must be named")
    return _call_from_json_arguments(name, written)


def _bare_calls(text: str, tools: Offered) -> list[WrittenCall]:
    """Calls in a text that consists only of calls of offered tools, without any markup."""
    body = _END_OF_TURN.sub("", text.strip()).strip()
    if not tools or not body:
        return []
    fenced = _FENCED.match(body)
    body = fenced["body"].strip() if fenced else body.removeprefix("functools")
    if body[:1] not in ("{", "[") and not CALLED.match(body):
        return []
    calls = calls_in_json(body) or _parse_python_calls(body)
    return calls if all(call.name in tools for call in calls) else []


def _parse_error(body: str) -> str:
    _, error = parse_arguments(body)
    return (error or "the call has no name").replace("the arguments are", "the call is", 1)


def _broken_call(raw: str, error: str) -> WrittenCall:
    return WrittenCall("", None, raw.strip(), error)
