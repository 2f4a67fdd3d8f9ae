"""Parse the contents of tool-call markup: calls in the format of each model family.

`loopline.agents.call_markup` finds the markup; here its contents become calls, or errors that the
model can be told. Every scan is linear in the text.
"""

from __future__ import annotations

import ast
import html
import itertools
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, cast

from loopline.agents.call_values import kinds_of, kinds_of_value, own_tags, parameters_of
from loopline.agents.records import JsonObject
from loopline.agents.tools.json_arguments import parse_arguments

FENCED = re.compile(
    r"\A```(?:json|python|tool_call|tool_code|xml)?[ \t]*\n(?P<body>.*)\n```\Z", re.DOTALL
)
# The name is in the tag (Qwen3-Coder, Seed) or in its attribute (MiniCPM, Claude). Llama 3.3 often
# goes on to the arguments without the end of the tag: `<function=now{}</function>`.
_FUNCTION = re.compile(
    r"<(?P<tag>function)(?:=\"?| ?name=\")(?P<name>[^>\s\"=({\[,]{1,100})(?:\"?>|(?=\s?[=({\[,]))"
)
_AROUND_ARGUMENTS = "=()[],> \t\r\n"
_PARAMETER = re.compile(
    r"<(?P<tag>param(?:eter)?)(?:=\"?| ?name=\")(?P<name>[^>\s\"]{1,100})\"?>\n?"
)
_PARAMETER_END = re.compile(r"</[^\s<>/]{0,20}param")
_ENDS = {
    name: re.compile(rf"</[^\s<>/]{{0,20}}?\b{name}>")
    for name in ("function", "invoke", "parameter", "param")
}
_ELEMENT = re.compile(r"<(?P<name>[\w.-]{1,100})>\n?")
_INVOKE = re.compile(r"<(?P<tag>[^\s<>]{0,20}invoke) name=\"(?P<name>[^\"<>]{1,100})\" ?/?>")
_INVOKED_WITH = re.compile(
    r"<(?P<tag>[^\s<>]{0,20}parameter) name=\"(?P<name>[^\"<>]{1,100})\""
    r"(?: string=\"(?P<text>true|false)\")?[^<>]{0,50}>"
)
_ARGUMENT = re.compile(
    r"<(?P<before>[\w|]{0,20})arg_key(?P<behind>[:\w]{0,20})>(?P<name>[^<]{1,200})"
    r"</(?P=before)arg_key(?P=behind)>\s{0,20}"
    r"(?:<(?P=before)arg_type(?P=behind)>[^<]{0,50}</(?P=before)arg_type(?P=behind)>\s{0,20})?"
    r"(?:<(?P=before)arg_value(?P=behind)>)?"
)
_ARGUMENT_END = re.compile(r"</[\w|]{0,20}arg_value\b")
_NAME_ENDS = re.compile(r"</?[\w|]{0,20}(?:arg_key|tool_sep)\b")
NAMED = re.compile(r"(?:call:)?(?P<name>[\w.-]{1,100}(?::[0-9]{1,4})?)\s{0,20}(?=\{)")
CALLED = re.compile(r"\A[\w.-]{1,100}\(")
# DeepSeek's marks; some servers write the bars and the spaces in ASCII.
_DEEPSEEK = re.compile(
    r"<[|｜]tool[▁_]call[▁_]begin[|｜]>(?P<head>[^<]{0,200})<[|｜]tool[▁_]sep[|｜]>"
)
_DEEPSEEK_END = re.compile(r"<[|｜]tool[▁_]call[▁_]end[|｜]>")
_KIMI = re.compile(
    r"<\|tool_call_begin\|>\s{0,20}(?P<head>[^<]{1,200})<\|tool_call_argument_begin\|>"
)
_KIMI_3 = re.compile(r"<\|open\|>call (?P<attributes>[^<]{1,300})<\|sep\|>")
_KIMI_3_ARGUMENT = re.compile(r"<\|open\|>argument (?P<attributes>[^<]{1,300})<\|sep\|>")
_ATTRIBUTE = re.compile(r"(?P<name>\w{1,50})=\"(?P<value>[^\"]{0,200})\"")
_SOLAR = re.compile(r"[^<]{0,100}<\|tool_call:name\|>(?P<head>[^<]{1,200})<\|tool_call:args\|>")
_PLAMO = re.compile(
    r"<\|plamo:begin_tool_name:plamo\|>(?P<head>[^<]{1,200})<\|plamo:end_tool_name:plamo\|>\s{0,20}"
    r"<\|plamo:begin_tool_arguments:plamo\|>(?:<\|plamo:constrain\|>json)?(?:<\|plamo:msg\|>)?"
)
_MINIMAX_NAMESPACE = "]<]minimax[>["
_MINIMAX_INVOKE = re.compile(r"<invoke name=\"(?P<name>[^\"<>]{1,100})\">")
_MINIMAX_VALUE = re.compile(r"<(?P<name>[\w.-]{1,100})>(?P<value>[^<]*+)</(?P=name)>")
_CDATA = re.compile(r"\A\s*<!\[CDATA\[(.*)\]\]>\s*\Z", re.DOTALL)
_GEMMA_QUOTE = re.compile(r"<\|\"\|>|<escape>")
_GEMMA_KEY = re.compile(r"(?P<before>[{,]\s{0,20})(?P<name>[\w.-]{1,100})(?=\s{0,20}:)")
_ARGUMENTS = ("arguments", "parameters", "args", "input")
_DASHED = re.compile(r"[\w.-]{1,100}")
_TEXT = frozenset(("string",))
_MAX_CALLED_CHARS = 20_000
"""Maximum length in characters of calls in Python syntax, which are parsed as Python."""
GEMINI_MODULE = "default_api."
"""Module of the tools in the Python code of Gemini."""
DECODER = json.JSONDecoder()

Offered = Mapping[str, JsonObject]
"""The offered tools: name → schema of the parameters."""

MAX_CALLS = 1_000
"""Maximum number of calls of one text, far more than any role runs; later ones are not parsed."""


@dataclass(frozen=True, slots=True)
class WrittenCall:
    """One call. `arguments` is None if it could not be parsed; then `error` states why."""

    name: str
    arguments: JsonObject | None
    raw: str
    """Arguments as written, or the whole call if it could not be parsed."""
    error: str | None = None


def marked_calls(body: str, tools: Offered) -> Iterator[WrittenCall]:
    """Calls that have their own marks within the markup."""
    if body.startswith("<function"):
        yield from _calls_of_functions(body, tools)
    elif body.startswith(_MINIMAX_NAMESPACE):
        yield from _calls_of_minimax(body.replace(_MINIMAX_NAMESPACE, ""), tools)
    elif (plain := _marked_content(body)) is not None and _INVOKE.match(plain):
        yield from _calls_of_invocations(plain, tools)
    elif _DEEPSEEK.match(body):
        for named, inner in split_at_marks(_DEEPSEEK.finditer(body), body):
            inner = _DEEPSEEK_END.split(inner, maxsplit=1)[0].strip()
            name = named["head"].strip()
            if name == "function" and "\n" in inner:
                name, _, inner = inner.partition("\n")
            fenced = FENCED.match(inner.strip())
            yield call_from_json_arguments(
                name.strip(), (fenced["body"] if fenced else inner).strip()
            )
    elif _KIMI.match(body):
        for named, inner in split_at_marks(_KIMI.finditer(body), body):
            inner = inner.partition("<|tool_call_end|>")[0]
            yield call_from_json_arguments(named["head"].strip(), inner.strip())
    elif _KIMI_3.match(body):
        for named, inner in split_at_marks(_KIMI_3.finditer(body), body):
            yield _call_of_kimi_3(named, inner)
    elif (named := _SOLAR.match(body)) is not None:
        yield call_from_json_arguments(named["head"].strip(), body[named.end() :])
    elif (requested := _PLAMO.search(body)) is not None and body.startswith("<|plamo:"):
        for named, inner in split_at_marks(_PLAMO.finditer(body, requested.start()), body):
            inner = inner.partition("<|plamo:end_tool_arguments:plamo|>")[0]
            yield call_from_json_arguments(named["head"].strip(), inner.strip())
    elif "[ARGS]" in body and not body.startswith(("[", "{")):  # not in a text of JSON
        name, _, arguments = body.partition("[ARGS]")
        yield call_from_json_arguments(name.partition("[CALL_ID]")[0].strip(), arguments.strip())
    elif "arg_key" in body and not body.startswith("{") and _ARGUMENT.search(body):
        values = {
            match["name"].strip(): _until_argument_end(value)
            for match, value in split_at_marks(_ARGUMENT.finditer(body), body)
        }
        name = _NAME_ENDS.split(body, maxsplit=1)[0].strip().removeprefix("functions.")
        yield _call_from_texts(name, values, body, tools)
    elif (named := NAMED.match(body)) is not None:
        arguments = body[named.end() :]
        if named[0].startswith("call:") and parse_arguments(arguments)[0] is None:
            arguments = _gemma_arguments(arguments)
        yield call_from_json_arguments(named["name"], arguments)
    elif (name := body.removesuffix("<tool_sep>").strip()) in tools:
        yield WrittenCall(name, {}, "{}")


def _marked_content(body: str) -> str | None:
    """The content of a call whose mark (Step's format) announces a function; None for another
    call."""
    named = _DEEPSEEK.match(body)
    if named is None:
        return body
    inner = body[named.end() :]
    return inner if _INVOKE.match(inner) else None


def _calls_of_invocations(body: str, tools: Offered) -> Iterator[WrittenCall]:
    for named, inner, parameters in _calls_with_values(_INVOKE, _INVOKED_WITH, body, tools):
        values = _values_of(inner, parameters, tools.get(named["name"], {}))
        if not values and inner.strip().startswith("{"):
            yield call_from_json_arguments(named["name"], inner.strip())
            continue
        texts = {match["name"] for match, _ in parameters if match["text"] == "true"}
        yield _call_from_texts(named["name"], values, inner, tools, texts)


def _calls_of_functions(body: str, tools: Offered) -> Iterator[WrittenCall]:
    for named, inner, parameters in _calls_with_values(_FUNCTION, _PARAMETER, body, tools):
        values = {
            name: _CDATA.sub(r"\1", value.removesuffix("\n"))
            for name, value in _values_of(inner, parameters, tools.get(named["name"], {})).items()
        }
        if values or not inner.strip():
            yield _call_from_texts(named["name"], values, inner, tools)
        else:
            bare = inner.strip(_AROUND_ARGUMENTS)
            arguments = bare if bare[:1] in ("", "{") else inner.strip()
            yield call_from_json_arguments(named["name"], arguments)


_Marked = tuple[re.Match[str], str]


def _calls_with_values(
    calls: re.Pattern[str], parameters: re.Pattern[str], body: str, tools: Offered
) -> Iterator[tuple[re.Match[str], str, list[_Marked]]]:
    """Each call's mark, its content, and its parameters' marks with the text after them."""
    starts = own_tags(body, tools).starts
    for named, rest in split_at_marks(
        (m for m in calls.finditer(body) if m.start() in starts), body
    ):
        inner = _until_end(rest, named["tag"])
        marks = (m for m in parameters.finditer(inner) if named.end() + m.start() in starts)
        yield named, inner, list(split_at_marks(marks, inner))


def _values_of(inner: str, parameters: list[_Marked], schema: JsonObject) -> dict[str, str]:
    """The values of a call's parameters. Models also write a parameter as an element of its
    name."""
    values: dict[str, str] = {}
    between = [inner[: parameters[0][0].start()] if parameters else inner]
    for match, text in parameters:
        values[match["name"]] = _value_of(text, match)
        between.append(text[len(values[match["name"]]) :])
    names = parameters_of(schema)
    for text in between:
        element = _ELEMENT.search(text)
        while element is not None:
            end = text.find(f"</{element['name']}>", element.end())
            if end < 0:
                break
            if element["name"] in names:
                values.setdefault(element["name"], text[element.end() : end])
            element = _ELEMENT.search(text, end)
    return values


def _until_end(text: str, tag: str) -> str:
    """The text before the last end of an element, which may itself mention that end; all of it if
    the model left the end out. Servers corrupt the prefix of an end."""
    ends = list(_ENDS[re.split(r"[^a-z]", tag)[-1]].finditer(text))
    if ends and not _PARAMETER_END.search(text, ends[-1].end()):
        return text[: ends[-1].start()]
    return text


def _value_of(text: str, mark: re.Match[str]) -> str:
    """A parameter's value. Models also end a parameter by its own name."""
    value = _until_end(text, mark["tag"])
    bare = text.rstrip().removesuffix(f"</{mark['name']}>")
    return bare if value == text and len(bare) < len(text.rstrip()) else value


def _until_argument_end(text: str) -> str:
    """The same for a value of GLM's notation, whose tags differ by model."""
    end = max((mark.start() for mark in _ARGUMENT_END.finditer(text)), default=len(text))
    return text[:end]


def _calls_of_minimax(body: str, tools: Offered) -> Iterator[WrittenCall]:
    """One tag for each argument. Nested values are not parsed, and the call's error states that."""
    for named, inner in split_at_marks(_MINIMAX_INVOKE.finditer(body), body):
        inner = inner.partition("</invoke>")[0].strip()
        values = {match["name"]: match["value"] for match in _MINIMAX_VALUE.finditer(inner)}
        if _MINIMAX_VALUE.sub("", inner).strip():
            yield WrittenCall(named["name"], None, inner, "the arguments must be plain values")
        else:
            yield _call_from_texts(named["name"], values, inner, tools)


def _call_of_kimi_3(named: re.Match[str], inner: str) -> WrittenCall:
    attributes = {m["name"]: m["value"] for m in _ATTRIBUTE.finditer(named["attributes"])}
    arguments: dict[str, object] = {}
    for match, value in split_at_marks(_KIMI_3_ARGUMENT.finditer(inner), inner):
        about = {m["name"]: m["value"] for m in _ATTRIBUTE.finditer(match["attributes"])}
        written = value.partition("<|close|>argument<|sep|>")[0]
        read = None if about.get("type") == "string" else json_value(written)
        arguments[html.unescape(about.get("key", ""))] = written if read is None else read[0]
    return call_from_json_arguments(
        attributes.get("tool", ""), json.dumps(arguments, ensure_ascii=False)
    )


def _gemma_arguments(written: str) -> str:
    """Gemma's arguments as JSON: its strings have special tokens as quotation marks, and its keys
    have none."""
    pieces: list[str] = []
    for place, piece in enumerate(_GEMMA_QUOTE.split(written)):
        if place % 2:
            pieces.append(json.dumps(piece, ensure_ascii=False))
        else:
            pieces.append(_GEMMA_KEY.sub(r'\g<before>"\g<name>"', piece))
    return "".join(pieces)


def split_at_marks(
    marks: Iterable[re.Match[str]], text: str
) -> Iterator[tuple[re.Match[str], str]]:
    """Each mark with the text between it and the next mark."""
    listed = list(marks)
    for match, following in itertools.zip_longest(listed, listed[1:]):
        if match is not None:
            yield match, text[match.end() : len(text) if following is None else following.start()]


def _call_from_texts(
    name: str,
    values: Mapping[str, str],
    raw: str,
    tools: Offered,
    texts: Collection[str] = (),
) -> WrittenCall:
    """A call with bare values: a text parameter takes them unchanged, another parameter as JSON if
    they are JSON. `texts`: the parameters that the markup itself calls texts."""
    schemas = parameters_of(tools.get(name, {}))
    arguments: dict[str, object] = {}
    for key, value in values.items():
        kinds = _TEXT if key in texts else kinds_of(schemas.get(key))
        read = json_value(value) or _python_value(value, kinds)
        if read is None or ("string" in kinds and not kinds_of_value(read[0]) & (kinds - _TEXT)):
            arguments[key] = value
        else:
            arguments[key] = read[0]
    checked, error = parse_arguments(json.dumps(arguments, ensure_ascii=False))
    if checked is None:
        return WrittenCall(name, None, raw.strip(), error)
    return WrittenCall(name, checked, json.dumps(checked, ensure_ascii=False))


def _python_value(text: str, kinds: Collection[str]) -> tuple[object] | None:
    """A value that a model wrote in Python's notation (`True`, `['a']`) for such a parameter."""
    if "string" in kinds or len(text) > _MAX_CALLED_CHARS:
        return None
    try:
        value: object = json.loads(json.dumps(ast.literal_eval(text.strip()), allow_nan=False))
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return None
    return (value,) if kinds_of_value(value) & set(kinds) else None


def json_value(text: str) -> tuple[object] | None:
    try:
        return (json.loads(text),)
    except (ValueError, RecursionError):
        return None


def call_from_json_arguments(name: str, raw: str) -> WrittenCall:
    """A call whose arguments are one JSON object."""
    name = re.sub(r"(?<=.):[0-9]{1,4}\Z", "", name).removeprefix("functions.")
    arguments, error = parse_arguments(raw or "{}")
    return WrittenCall(name, arguments, raw, error)


def calls_in_json(body: str, *, named_by_key: bool = False) -> list[WrittenCall]:
    """Calls from consecutive objects, or lists of objects; none if the text is not JSON.
    `named_by_key`: an object may also be `{name: arguments}`, as Apertus writes it."""
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
        if len(values) == 1 and isinstance(values[0], dict):
            listed: object = cast("dict[str, object]", values[0]).get("tool_calls")
            values = cast("list[object]", listed) if isinstance(listed, list) and listed else values
        calls += [_call_from_object(entry, body[position:end], named_by_key) for entry in values]
        position = end
        while position < len(body) and body[position] in " \t\r\n;,":
            position += 1
    return calls


def _call_from_object(value: object, raw: str, named_by_key: bool) -> WrittenCall:
    checked, error = parse_arguments(raw if isinstance(value, dict) else json.dumps(value))
    if not isinstance(value, dict) or (checked is None and error and "object" not in error):
        return broken_call(raw, (error or "").replace("the arguments are", "the call is", 1))
    call = cast("dict[str, object]", value)
    inner = call.get("function")
    if isinstance(inner, dict):
        call = cast("dict[str, object]", inner)
    name = next(
        (n for k in ("name", "function", "tool_name") if isinstance(n := call.get(k), str)), ""
    )
    if not name and named_by_key and len(call) == 1:
        [(name, inner)] = call.items()
        return call_from_json_arguments(name, json.dumps(inner, ensure_ascii=False))
    if not name:
        return broken_call(raw, "the call has no name")
    arguments = next((call[key] for key in _ARGUMENTS if key in call), None)
    if arguments is None or arguments == "":
        # A call of a tool without parameters; another tool's schema names what is missing.
        return WrittenCall(name, {}, "{}")
    if isinstance(arguments, str) and parse_arguments(arguments)[0] is not None:
        return call_from_json_arguments(name, arguments)
    written = json.dumps(arguments, ensure_ascii=False)
    if not isinstance(arguments, dict):
        error = f"the arguments must be a JSON object, not {type(arguments).__name__}"
        return WrittenCall(name, None, written, error)
    return call_from_json_arguments(name, written)


def python_calls(body: str, *, objects: bool = False) -> list[WrittenCall]:
    """Calls in Python syntax: one, a list of them, or one per line. `objects`: also as an object
    with Python quotation marks."""
    begins = body.startswith(("[", "{") if objects else "[") or CALLED.match(body)
    if len(body) > _MAX_CALLED_CHARS or not begins:
        return []
    try:
        tree = _JsonConstants().visit(ast.parse(body))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    calls: list[WrittenCall] = []
    for line in tree.body:
        if not isinstance(line, ast.Expr):
            return []
        values = line.value.elts if isinstance(line.value, ast.List | ast.Tuple) else [line.value]
        for value in values:
            call = _parse_python_call(value)
            if call is None and objects:
                call = _parse_python_object(value)
            if call is None:
                return []
            calls.append(call)
    return calls


class _JsonConstants(ast.NodeTransformer):
    """Replaces `true`, `false` and `null`, which Olmo 3 writes in calls in Python syntax."""

    _VALUES: ClassVar[dict[str, bool | None]] = {"true": True, "false": False, "null": None}

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Constant(self._VALUES[node.id]) if node.id in self._VALUES else node


def _parse_python_object(value: ast.expr) -> WrittenCall | None:
    if not isinstance(value, ast.Dict):
        return None
    try:
        written = json.dumps(ast.literal_eval(value), ensure_ascii=False, allow_nan=False)
    except (ValueError, TypeError, RecursionError, MemoryError):
        return None
    (call,) = calls_in_json(written) or (None,)
    return call


def _parse_python_call(value: ast.expr) -> WrittenCall | None:
    value = _with_dashed_name(value)
    if not isinstance(value, ast.Call):
        return None
    printed = isinstance(value.func, ast.Name) and value.func.id == "print"
    if printed and len(value.args) == 1:
        inner = _with_dashed_name(value.args[0])
        if isinstance(inner, ast.Call) and not inner.args:
            value = inner  # Gemma's tool_code blocks print a tool's result.
    raw = ast.unparse(value)
    name = ast.unparse(value.func).removesuffix(".call").removeprefix(GEMINI_MODULE)
    try:
        arguments = {keyword.arg: ast.literal_eval(keyword.value) for keyword in value.keywords}
        written = json.dumps(arguments, ensure_ascii=False, allow_nan=False)
    except (ValueError, TypeError, RecursionError, MemoryError):
        return WrittenCall(name, None, raw, "the arguments must be plain values")
    if value.args or None in arguments:
        return WrittenCall(name, None, raw, "the arguments must be named")
    return call_from_json_arguments(name, written)


def _with_dashed_name(value: ast.expr) -> ast.expr:
    """`get-time(zone="UTC")` as a call: Python reads a difference whose last term is a call."""
    if not (isinstance(value, ast.BinOp) and isinstance(value.right, ast.Call)):
        return value
    first = ast.unparse(value.left).replace(" - ", "-")
    if not isinstance(value.op, ast.Sub) or not _DASHED.fullmatch(first):
        return value
    name = ast.Name(f"{first}-{ast.unparse(value.right.func)}")
    return ast.Call(name, value.right.args, value.right.keywords)


def parse_error(body: str) -> str:
    """The error for a call in an unknown format."""
    _, error = parse_arguments(body)
    return (error or "the call has no name").replace("the arguments are", "the call is", 1)


def broken_call(raw: str, error: str) -> WrittenCall:
    return WrittenCall("", None, raw.strip(), error)
