"""Parses untrusted JSON and YAML to plain values, with limits that apply during parsing.

YAML is read by version 1.2 (core schema), as OpenAPI requires: `on`, `no`, `12:30` and dates are
texts. PyYAML's loaders implement version 1.1, take the second of two equal keys and recurse in C,
where 40 kB of `[` crash the process. So only its parser is used, and the values are built from its
events here.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterable
from typing import Any, NoReturn

import yaml
from pydantic import JsonValue

MAX_DEPTH = 200
MAX_ALIASED = 500_000
"""Maximum number of values from the aliases of a YAML page, which could expand to billions."""
MAX_KEY_CHARS = 10_000

_BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_TRUE, _FALSE = frozenset({"true", "True", "TRUE"}), frozenset({"false", "False", "FALSE"})
_INTEGER = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_TAG = "tag:yaml.org,2002:"
_MERGE = "<<"


class WrittenInt(int):
    """A number that remembers its spelling."""

    written: str


class WrittenFloat(float):
    """A number that remembers its spelling: `1.10` may be meant as a text."""

    written: str


def as_written(value: JsonValue) -> JsonValue:
    """A name that YAML read as a number (`name: 1`) in its original spelling; any other value as it
    is."""
    return getattr(value, "written", value)


class BadDocument(ValueError):
    """Why a text is not a valid document."""


def read_text(raw: bytes) -> JsonValue:
    """The values of a JSON or YAML text. Raises `BadDocument`."""
    text = _decode(raw)
    if text.lstrip()[:1] in ("{", "["):
        try:
            return _json(text)
        except BadDocument:
            raise
        except (ValueError, RecursionError) as error:
            if isinstance(error, RecursionError) or not _flow_yaml(text):
                what = "nested too deeply" if isinstance(error, RecursionError) else str(error)
                raise BadDocument(what) from error
    return _yaml(text)


def _decode(raw: bytes) -> str:
    encoding = next((name for mark, name in _BOMS if raw.startswith(mark)), "utf-8")
    try:
        return raw.decode(encoding)
    except UnicodeDecodeError as error:
        raise BadDocument(f"it is not UTF-8 text: {error}") from error


def _flow_yaml(text: str) -> bool:
    """Whether a text that starts like JSON may be YAML in braces, with unquoted keys."""
    return re.match(r"\s*\{\s*[A-Za-z]", text) is not None


def _json(text: str) -> JsonValue:
    def members(pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
        whole = dict(pairs)
        if len(whole) < len(pairs):
            keys: set[str] = set()
            twice = next(key for key, _ in pairs if key in keys or keys.add(key))
            raise BadDocument(f"the key {twice[:100]!r} occurs twice in one object")
        return whole

    return json.loads(text, object_pairs_hook=members, parse_constant=_refuse_constant)


def _refuse_constant(constant: str) -> NoReturn:
    raise BadDocument(f"{constant} is not a JSON number")


def _yaml(text: str) -> JsonValue:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the C version, if it was built
    try:
        return _Builder().built(yaml.parse(text, Loader=loader))
    except yaml.YAMLError as error:
        raise BadDocument(str(error)) from error


class _Open:
    """A list or an object that is being parsed."""

    def __init__(self, value: dict[str, JsonValue] | list[JsonValue], anchor: str | None) -> None:
        self.value = value
        self.anchor = anchor
        self.key: str | None = None
        self.merged: list[JsonValue] = []
        self.size = 1


class _Builder:
    """Builds values from the events of a YAML parser, without recursion."""

    def __init__(self) -> None:
        self._open: list[_Open] = []
        self._anchors: dict[str, tuple[JsonValue, int]] = {}
        self._aliased = 0
        self._result: JsonValue = None
        self._documents = 0

    def built(self, events: Iterable[Any]) -> JsonValue:
        for event in events:
            match event:
                case yaml.DocumentStartEvent():
                    self._documents += 1
                    if self._documents > 1:
                        raise BadDocument(f"a second document starts{_position(event)}")
                case yaml.MappingStartEvent():
                    self._begin(event, {})
                case yaml.SequenceStartEvent():
                    self._begin(event, [])
                case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                    self._end(event)
                case yaml.AliasEvent():
                    self._alias(event)
                case yaml.ScalarEvent():
                    self._scalar(event)
                case _:
                    pass
        return self._result

    def _begin(self, event: Any, value: dict[str, JsonValue] | list[JsonValue]) -> None:
        self._key_error(event)
        if len(self._open) >= MAX_DEPTH:
            raise BadDocument(f"nested more than {MAX_DEPTH} levels deep{_position(event)}")
        if event.tag not in (None, "!", f"{_TAG}map", f"{_TAG}seq"):
            raise BadDocument(f"the tag {event.tag[:100]!r} is not known{_position(event)}")
        self._open.append(_Open(value, event.anchor))

    def _end(self, event: Any) -> None:
        node = self._open.pop()
        if isinstance(node.value, dict):
            for more in node.merged:
                for mapping in more if isinstance(more, list) else [more]:
                    if not isinstance(mapping, dict):
                        raise BadDocument(
                            f"`<<` merges something that is not an object{_position(event)}"
                        )
                    # A mapping's own keys take precedence over merged ones.
                    node.value = {**mapping, **node.value}
                    node.size += len(mapping)
                    self._count_aliased(len(mapping))
        self._put(event, node.value, node.anchor, node.size)

    def _alias(self, event: Any) -> None:
        self._key_error(event)
        if event.anchor not in self._anchors:
            raise BadDocument(f"the alias *{event.anchor[:100]} has no anchor{_position(event)}")
        value, size = self._anchors[event.anchor]
        self._count_aliased(size)
        self._put(event, value, None, size)

    def _count_aliased(self, size: int) -> None:
        self._aliased += size
        if self._aliased > MAX_ALIASED:
            raise BadDocument(f"its aliases expand to more than {MAX_ALIASED} values")

    def _scalar(self, event: Any) -> None:
        holder = self._open[-1] if self._open else None
        if holder is None or not isinstance(holder.value, dict) or holder.key is not None:
            self._put(event, _value_of(event), event.anchor, 1)
            return
        # Keys are always texts, even `200`, `on` and `null`.
        key = str(event.value)
        if len(key) > MAX_KEY_CHARS:
            raise BadDocument(f"a key has more than {MAX_KEY_CHARS} characters{_position(event)}")
        merges = key == _MERGE and not event.style
        if key in holder.value and not merges:
            raise BadDocument(f"the key {key[:100]!r} occurs twice in one object{_position(event)}")
        holder.key = key
        if event.anchor is not None:
            self._anchors[event.anchor] = (key, 1)
        if not merges:
            holder.value[key] = None  # reserves the key's position; the value follows

    def _put(self, event: Any, value: JsonValue, anchor: str | None, size: int) -> None:
        if anchor is not None:
            self._anchors[anchor] = (value, size)
        if not self._open:
            self._result = value
            return
        holder = self._open[-1]
        holder.size += size
        if isinstance(holder.value, list):
            holder.value.append(value)
            return
        key, holder.key = holder.key, None
        assert key is not None, "`_key_error` refuses keys that are not scalars"
        if key == _MERGE and key not in holder.value:
            holder.merged.append(value)
        else:
            holder.value[key] = value

    def _key_error(self, event: Any) -> None:
        holder = self._open[-1] if self._open else None
        if holder is not None and isinstance(holder.value, dict) and holder.key is None:
            raise BadDocument(f"a key is not text{_position(event)}")


def _value_of(event: Any) -> JsonValue:
    """A scalar by the core schema: https://yaml.org/spec/1.2.2/#103-core-schema"""
    text: str = event.value
    tag: str | None = event.tag
    if tag is not None and tag != "!" and not tag.startswith(_TAG):
        raise BadDocument(f"the tag {tag[:100]!r} is not known{_position(event)}")
    named = tag.removeprefix(_TAG) if tag not in (None, "!") else ""
    if named not in ("", "str", "null", "bool", "int", "float", "timestamp", "binary"):
        raise BadDocument(f"the tag {tag[:100] if tag else ''!r} is not known{_position(event)}")
    plain = not event.style and tag is None
    if not plain and named not in ("null", "bool", "int", "float"):
        return text
    if text in _NULL:
        return None
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    if _INTEGER.fullmatch(text) and len(text) <= 100:
        number = WrittenInt(text, 0 if text[:2] in ("0o", "0x") else 10)
        number.written = text
        return number
    if _FLOAT.fullmatch(text) and len(text) <= 100:
        value = WrittenFloat(text)
        value.written = text
        return value if abs(value) != float("inf") else text
    return text


def _position(event: Any) -> str:
    return f" (line {event.start_mark.line + 1})"
