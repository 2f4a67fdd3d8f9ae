"""Assembles tool calls from the pieces in a stream.

A piece identifies its call by an index, by an id, by neither, or wrongly: some servers give every
call the index 0, repeat name and id in each piece, or send a call's arguments again at its end.
Calls are therefore told apart by index, id, name, and whether the arguments so far are complete.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import cast

from loopline.agents.records import JsonObject, ToolCall
from loopline.agents.tools.json_arguments import parse_arguments
from loopline.workers.engines.openai.answer import CallPiece
from loopline.workers.engines.text.text_stream import join_surrogates
from loopline.workers.engines.text.tool_markup import tool_call_id


@dataclass
class _Call:
    index: int | None
    id: str
    name: str
    arguments: str
    last: str = ""
    """The last piece of the arguments."""
    extra: JsonObject | None = None

    @property
    def raw(self) -> str:
        """The arguments so far. A server that sends all arguments so far in every piece sends the
        complete ones last."""
        repeated = self.last and not self.is_whole and _is_object(self.last)
        return self.last if repeated else self.arguments

    @property
    def is_whole(self) -> bool:
        return _is_object(self.arguments)


class CallAssembly:
    """The calls of one completion. `tools` are the names on offer: they show whether a name in a
    piece continues the previous one or repeats it."""

    def __init__(self, tools: Collection[str]) -> None:
        self._tools = tools
        self._calls: list[_Call] = []
        self._last: _Call | None = None

    def __bool__(self) -> bool:
        return bool(self._calls)

    def add(self, pieces: list[CallPiece], *, streamed: bool) -> None:
        """Add the calls of one message: whole calls, or the pieces of one chunk."""
        if not streamed:
            self._calls.extend(_begun(piece) for piece in pieces)
            return
        named: set[int] = set()
        for position, piece in enumerate(pieces):
            call = self._find_call(piece, position, len(pieces))
            if call is not None and id(call) in named and piece.name:
                call = None  # one chunk does not start a call twice
            if call is None:
                call = _begun(piece)
                self._calls.append(call)
            else:
                self._extend(call, piece)
            if piece.name:
                named.add(id(call))
            self._last = call

    def finished(self, id_seed: str) -> tuple[ToolCall, ...]:
        """Return the calls with parsed arguments, each with its own id. A call that cannot be
        parsed keeps its text and an error. Missing arguments are those of a tool without
        parameters."""
        result: list[ToolCall] = []
        identifiers: set[str] = set()
        for position, call in enumerate(self._calls):
            raw = join_surrogates(call.raw)
            arguments, error = parse_arguments(_unwrap_arguments(raw))
            name = _plain_name(join_surrogates(call.name), self._tools)
            if not name:
                arguments, error = None, "the call has no name"
            identifier = join_surrogates(call.id)
            if not identifier or identifier in identifiers:
                identifier = tool_call_id(id_seed, position)
            identifiers.add(identifier)
            result.append(
                ToolCall(
                    id=identifier,
                    name=name,
                    arguments=arguments,
                    raw_arguments=raw,
                    error=error,
                    extra_content=call.extra,
                )
            )
        return tuple(result)

    def _find_call(self, piece: CallPiece, position: int, together: int) -> _Call | None:
        """The call that a piece belongs to; None if the piece starts a new one."""
        if piece.index is None:
            return self._find_call_by_id(piece, position, together)
        last_call = next((c for c in reversed(self._calls) if c.index == piece.index), None)
        if last_call is None:
            # A second call whose start has the index of the first one.
            continues = not (piece.id or piece.name) and self._last and not self._last.is_whole
            return self._last if continues else None
        if piece.id and last_call.id and piece.id != last_call.id and piece.name:
            # A new id starts a new call, unless the server creates an id for every piece.
            begun = last_call.arguments and not last_call.is_whole
            return last_call if begun and not piece.arguments.lstrip().startswith("{") else None
        if piece.id and piece.id == last_call.id:
            return last_call
        return None if self._begins_by_name(last_call, piece) else last_call

    def _begins_by_name(self, call: _Call, piece: CallPiece) -> bool:
        """Whether the name in a piece without a new id starts a new call."""
        if not piece.name or call.name + piece.name in self._tools:
            return False
        is_other_tool = (
            piece.name in self._tools and call.name in self._tools and piece.name != call.name
        )
        return is_other_tool or (
            call.is_whole and bool(piece.arguments) and piece.name == call.name
        )

    def _find_call_by_id(self, piece: CallPiece, position: int, together: int) -> _Call | None:
        """Find the call of a piece without an index: a known id is that call's, an unknown one
        starts a call. A piece without an id continues the last call or, among several in one chunk,
        the call at the same position."""
        if piece.id:
            return next((c for c in self._calls if c.id == piece.id), None)
        if together > 1:
            return self._calls[position] if position < len(self._calls) else None
        if self._last is None or self._begins_by_name(self._last, piece):
            return None
        return self._last

    def _extend(self, call: _Call, piece: CallPiece) -> None:
        call.id = call.id or piece.id
        call.extra = piece.extra or call.extra
        if piece.name and piece.name != call.name:
            again = piece.name in self._tools and call.name + piece.name not in self._tools
            call.name = piece.name if again else call.name + piece.name
        if piece.arguments.startswith("{") and call.is_whole and piece.arguments == call.arguments:
            return  # repeated at the end of the call
        if piece.arguments:
            if call.arguments.strip() == "{}" and piece.arguments.lstrip().startswith("{"):
                call.arguments = ""  # Anthropic's empty `input`, which bridges send first
            call.arguments += piece.arguments
            call.last = piece.arguments


def _begun(piece: CallPiece) -> _Call:
    return _Call(piece.index, piece.id, piece.name, piece.arguments, extra=piece.extra)


def _plain_name(name: str, tools: Collection[str]) -> str:
    """The offered tool that a name refers to, if the server left model markup in it: Kimi's
    `functions.NAME:0`, gpt-oss's `NAME<|channel|>commentary`."""
    if name in tools:
        return name
    plain = re.sub(r":[0-9]{1,4}\Z", "", name.partition("<|")[0].strip()).removeprefix("functions.")
    return plain if plain in tools else name


def _is_object(text: str) -> bool:
    if not text.rstrip().endswith("}"):  # most pieces: no need to parse them
        return False
    try:
        return isinstance(json.loads(text, strict=False), dict)
    except (ValueError, RecursionError):
        return False


def _unwrap_arguments(raw: str) -> str:
    """Arguments as the JSON of an object: an empty text and null become `{}`, and an object inside
    a JSON string is unwrapped."""
    if raw.strip() in ("", "null"):
        return "{}"
    if raw.lstrip().startswith('"'):
        try:
            inner: object = json.loads(raw, strict=False)
        except (ValueError, RecursionError):
            return raw
        if _is_object(cast(str, inner)):
            return cast(str, inner)
    return raw
