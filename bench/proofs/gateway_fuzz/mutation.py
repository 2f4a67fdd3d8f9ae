"""Invalid bodies: a partly changed JSON value, and bytes that are not JSON."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

import orjson

MAX_DEEP = 100_000
"""Brackets of the deepest body; the other depths are at and near the limits of libraries."""
DEPTHS = (20, 127, 128, 250, 254, 255, 256, 900, 1_000, 1_024, 1_025, 5_000, MAX_DEEP)
LONG = 10_000
"""Length of a long text in characters, and of a long list in items."""

TOKENS = (
    b"NaN", b"Infinity", b"-Infinity", b"-0", b"1e999", b"-1e-999", b"0.1e1", b"1" * 30,
    b"9" * 5_000, b"9223372036854775808", b"18446744073709551616", b"-9223372036854775809",
    rb'"\ud800"', rb'"\udfff\ud800"', rb'"\u0000"', b'"\xff\xfe"', b'"\xed\xa0\x80"', b"'x'",
    b"undefined", b"{}{}", b"[,]", b'{"a":1,"a":2}', b'{"__proto__":{}}', b"True", b"0x10", b"",
)  # fmt: skip
"""Texts that Python's encoder does not write; a body contains them verbatim."""

TEXTS = (
    "", " ", "\0", "\n", "\x7f", "\u2028", "a" * LONG, "💥" * 3_000, "\u202e", "e\u0301" * 500,
    "../../etc/passwd", "'; DROP TABLE", "{{7*7}}", "${x}", "%s%n", "<script>", "*", "NaN", "null",
    "llm", "slm", "LLM", "slm@1", "slm/none", "llm@999999999999999999999", "workflow/solo",
    "workflow/delegate", "workflow/", "workflow/nobody", "workflow/chat", "/", "@", "auto", "none",
    "required", "function", "tool", "system", "developer", "assistant", "message", "json_schema",
    "</think>", "<tool_call>", "<|im_end|>", "<|channel|>", '{"a":', "[" * 2_000, "١٢٣", "1_0",
    r"\ud800", '{"a": "\\ud800"}', '{"a": NaN}', '{"a": 1e999}',
    '{"a":' + "9" * 400 + "}", '{"a": ' + "[" * 300 + "]" * 300 + "}", "data:image/png;base64,AAAA",
    "http://127.0.0.1:9/hook",
)  # fmt: skip

SCHEMAS: tuple[Any, ...] = (
    {"$ref": "#"}, {"$ref": "http://127.0.0.1:9/schema"}, {"$ref": "#/$defs/x"},
    {"type": "nothing"}, {"type": ["object", "array"], "minItems": 10**9}, {"pattern": "(a+)+$"},
    {"pattern": "("}, {"enum": []}, {"not": {}}, {"allOf": [{"$ref": "#"}]},
    {"properties": 1}, {"required": "x"},
    {"type": "object", "properties": {"\0": {"const": {}}}}, {"anyOf": []},
    {"multipleOf": 0}, False,
    {"type": "string", "minLength": 10**9}, {"type": "integer", "minimum": 1e300}, {"$schema": "x"},
)  # fmt: skip

VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 64, 65, 2**31, 2**53, 2**63 - 1, 2**63, 2**64 - 1, 0.5, -0.0,
    1e-320, 1e308, [], {}, [[]], [None], [{}], {"": ""}, {"type": "text"}, {"type": "image_url"},
    {"type": "function"}, {"role": "user"}, [""] * 17, *TEXTS, *SCHEMAS,
)  # fmt: skip

_MARK = "@@hostile-%d@@"


class Mutator:
    """Changes values with its random source."""

    def __init__(self, source: random.Random) -> None:
        self._random = source
        self._tokens: list[bytes] = []

    def body(self, value: dict[str, Any]) -> bytes:
        """Return a body based on this value, with one to four changes. The value is changed,
        too."""
        self._tokens = []
        root: dict[str, Any] = {"body": value}
        for _ in range(self._random.choice((1, 1, 1, 2, 2, 3, 4))):
            self._change(root)
        text = orjson.dumps(root["body"])
        for number, token in enumerate(self._tokens):
            text = text.replace(b'"' + (_MARK % number).encode() + b'"', token)
        return self._damaged(text) if self._random.random() < 0.1 else text

    def _change(self, root: dict[str, Any]) -> None:
        places = list(_places(root))
        holder, name = self._random.choice(places)
        changes: tuple[Callable[[Any, Any], None], ...] = (
            self._replace, self._replace, self._replace, self._put_token, self._remove,
            self._repeat, self._wrap, self._rename, self._add, self._exchange,
        )  # fmt: skip
        self._random.choice(changes)(holder, name)
        root.setdefault("body", None)

    def _replace(self, holder: Any, name: Any) -> None:
        holder[name] = _copy(self._random.choice(VALUES))

    def _put_token(self, holder: Any, name: Any) -> None:
        if self._random.random() < 0.3:
            depth = self._random.choices(DEPTHS, [8] * 11 + [2, 1])[0]
            opened, closed = self._random.choice(((b"[", b"]"), (b'{"a":', b"}")))
            token = opened * depth + b"1" + closed * depth
        else:
            token = self._random.choice(TOKENS)
        holder[name] = _MARK % len(self._tokens)
        self._tokens.append(token)

    def _remove(self, holder: Any, name: Any) -> None:
        del holder[name]

    def _repeat(self, holder: Any, name: Any) -> None:
        times = self._random.choice((2, 2, 3, 17, 129, 1_000))
        value = holder[name]
        size = len(orjson.dumps(value))
        holder[name] = [value] * max(2, min(times, 50_000 // (size + 1)))

    def _wrap(self, holder: Any, name: Any) -> None:
        holder[name] = self._random.choice(([holder[name]], {"value": holder[name]}))

    def _rename(self, holder: Any, name: Any) -> None:
        if isinstance(holder, dict):
            holder[self._random.choice(TEXTS)] = holder.pop(name)

    def _add(self, holder: Any, name: Any) -> None:
        if isinstance(holder[name], dict):
            holder[name][self._random.choice(TEXTS)] = _copy(self._random.choice(VALUES))
        elif isinstance(holder[name], list):
            holder[name].append(_copy(self._random.choice(VALUES)))

    def _exchange(self, holder: Any, name: Any) -> None:
        places = list(_places(holder))
        other, key = self._random.choice(places)
        holder[name] = _copy(other[key])

    def _damaged(self, text: bytes) -> bytes:
        """Return the body with some bytes changed, valid or not."""
        if not text:
            return text
        place = self._random.randrange(len(text))
        match self._random.randrange(6):
            case 0:
                return text[:place]
            case 1:
                return text + self._random.choice((b"\0", b" x", b"}", text[:1_000]))
            case 2:
                return text[:place] + self._random.randbytes(3) + text[place + 3 :]
            case 3:
                return b"\xef\xbb\xbf" + text
            case 4:
                return text.decode("utf-8", "replace").encode("utf-16")
            case _:
                return text[:place] + text[place + 1 :]


def _copy(value: Any) -> Any:
    return copy.deepcopy(value) if isinstance(value, dict | list) else value


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Return every (container, key or index) in a value, containers first; long lists are
    skipped."""
    places: list[tuple[Any, Any]] = []
    waiting: list[Any] = [value]
    while waiting and len(places) < 400:
        holder = waiting.pop(0)
        keys = list(holder) if isinstance(holder, dict) else list(range(min(len(holder), 40)))
        for key in keys:
            places.append((holder, key))
            if isinstance(holder[key], dict | list):
                waiting.append(holder[key])
    return places
