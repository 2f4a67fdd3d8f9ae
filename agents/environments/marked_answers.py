"""Reads answers of the form `#### […]`: one list at the end of a text, after anything else.

The reader is strict on purpose. It refuses a text with two answers, or with words after the list,
and does not guess: a policy is trained on its text, not on a lenient interpretation. Walls of a
level are drawn with the same sign, so a mark counts only if a list follows.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from loopline.agents.environments.game import Refusal
from loopline.agents.thinking import text_without_thoughts

MARK = "####"
MAX_LIST_CHARS = 8_000
"""Maximum length of a list: a 20 x 20 grid has 400 cells, so no sensible list is longer."""

MOVES = frozenset("UDLR")
_SHOWN = 20
_MARKED = re.compile(rf"(?<!#){MARK}\s*\[")
_CALL = re.compile(r"\s*(?P<name>[a-z_]+)\s*\((?P<arguments>[^()]*)\)\s*")
_ROW = re.compile(r"\s*(?:\[(?P<a>[\d\s,]*)\]|\((?P<b>[\d\s,]*)\))\s*")


@dataclass(frozen=True, slots=True)
class Call:
    """A call of the tool language."""

    name: str
    arguments: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.name}({', '.join(self.arguments)})"


def read_moves(text: str, most: int) -> tuple[str, ...] | Refusal:
    """Read `#### [U, R, R]`: at least one and at most `most` moves."""
    body = _list_body(text)
    if isinstance(body, Refusal):
        return body
    moves = tuple(part.strip() for part in body.split(","))
    strange = next((move for move in moves if move not in MOVES), None)
    if strange is not None:
        return Refusal("unknown_move", f"{strange[:_SHOWN]!r} is none of U, D, L, R")
    if len(moves) > most:
        return Refusal("too_long", f"{len(moves)} moves, at most {most}")
    return moves


def read_rows(text: str) -> tuple[tuple[int, ...], ...] | Refusal:
    """Read `#### [[1, 2], [3, 4]]` or `#### [(1, 2), (3, 4)]`: rows of whole numbers."""
    body = _list_body(text)
    if isinstance(body, Refusal):
        return body
    rows: list[tuple[int, ...]] = []
    for piece in _list_items(body, _ROW):
        if isinstance(piece, Refusal):
            return piece
        numbers = [n.strip() for n in (piece["a"] or piece["b"] or "").split(",")]
        strange = next((n for n in numbers if not (n.isascii() and n.isdigit())), None)
        if strange is not None:
            return Refusal("not_a_number", f"{strange[:_SHOWN]!r} is no whole number")
        if any(len(n) > 3 for n in numbers):
            return Refusal("not_a_number", "a number has more than 3 digits")
        rows.append(tuple(int(n) for n in numbers))
    return tuple(rows)


def read_calls(text: str, most: int) -> tuple[Call, ...] | Refusal:
    """Read `#### [bfs(6), step(U)]`: at least one and at most `most` calls."""
    body = _list_body(text)
    if isinstance(body, Refusal):
        return body
    calls: list[Call] = []
    for piece in _list_items(body, _CALL):
        if isinstance(piece, Refusal):
            return piece
        arguments_text = piece["arguments"].strip()
        arguments = (
            tuple(part.strip() for part in arguments_text.split(",")) if arguments_text else ()
        )
        calls.append(Call(piece["name"], arguments))
    if len(calls) > most:
        return Refusal("too_long", f"{len(calls)} calls, at most {most}")
    return tuple(calls)


def _list_body(text: str) -> str | Refusal:
    """Return the non-empty text between the brackets of the only list."""
    text = text_without_thoughts(text)
    marks = list(_MARKED.finditer(text))
    if not marks and re.search(rf"(?<!#){MARK}(?!#)", text):
        return Refusal("not_a_list", f"{MARK} is not followed by [")
    if not marks:
        return Refusal("no_answer", f"there is no {MARK}")
    if len(marks) > 1:
        return Refusal("several_answers", f"{MARK} [ stands {len(marks)} times")
    answer = text[marks[0].end() - 1 :].strip()
    if len(answer) > MAX_LIST_CHARS:
        return Refusal("too_long", f"{len(answer)} characters, at most {MAX_LIST_CHARS}")
    end = answer.rfind("]")
    if end < 0:
        return Refusal("not_a_list", "there is no ]")
    if answer[end + 1 :].strip():
        return Refusal("text_after_answer", f"{answer[end + 1 :].strip()[:_SHOWN]!r}")
    body = answer[1:end].strip()
    return body or Refusal("empty", "the list is empty")


def _list_items(body: str, shape: re.Pattern[str]) -> list[re.Match[str] | Refusal]:
    """Return the comma-separated items of a list, each matching `shape`; a refusal is the last
    item."""
    pieces: list[re.Match[str] | Refusal] = []
    place = 0
    while True:
        item = shape.match(body, place)
        if item is None:
            return [*pieces, Refusal("not_an_item", f"{body[place : place + _SHOWN]!r}")]
        pieces.append(item)
        place = item.end()
        if place == len(body):
            return pieces
        if body[place] != ",":
            return [*pieces, Refusal("not_an_item", f"{body[place : place + _SHOWN]!r}")]
        place += 1
