"""The part of a model's speech that can be shown while it grows: no call markup, nothing twice.

Speech is a text without its thoughts (`loopline.agents.visible_text`). It never shrinks, so any
part that `loopline.agents.call_markup.strip_calls` keeps regardless of later text can be shown.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from typing import Literal

from loopline.agents.call_forms import GEMINI_MODULE
from loopline.agents.call_markup import (
    BARE_PREFIXES,
    ENDS,
    INCLUSIVE,
    OPENING,
    REGIONS,
    SECTION,
    STRAY_ENDS,
    calls_in_json,
    ends_in_value,
)
from loopline.agents.thinking import BLANK_LINES, WRAPPINGS


def unfinished(literals: Iterable[str]) -> re.Pattern[str]:
    """A pattern for text that may become one of the literals, at the end of a text."""
    prefixes = {literal[:end] for literal in literals for end in range(1, len(literal))}
    literal_prefixes = sorted(prefixes, key=len, reverse=True)
    return re.compile(rf"(?:{'|'.join(map(re.escape, literal_prefixes))})\Z")


LONGEST = 40
"""Maximum length of a literal that is searched for at the end of a text."""
_UNFINISHED = unfinished(REGIONS)
_UNFINISHED_END = re.compile(rf"\s*(?:{unfinished(ENDS).pattern}|\Z)")
_UNFINISHED_SECTION = re.compile(r"(?m:^)>(?:>(?:>[\w.-]{0,100})?)?\Z")
_MAX_SECTION_CHARS = 105
_FENCE = re.compile(r"```(?:json|python|tool_call|tool_code|xml)?[ \t]*\n\s*")
_FENCES = [f"```{info}\n" for info in ("", "json", "python", "tool_call", "tool_code", "xml")]
_IDENTIFIER = re.compile(r"[\w.-]{1,100}")
_BRACKET = re.compile(r'["\[\]{}]')
_IN_STRING = re.compile(r'(?:[^"\\]|\\.)*+(?P<end>"?)', re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\]|\\.)*+(?:"|\Z)', re.DOTALL)
_NO_OBJECT = re.compile(r'\{\s{0,100}[^"}\s]')
_PYTHON_LIST = " \t\r\n(#\\]"
_JSON_LIST = ' \t\r\n"{[]-0123456789tfnNI'


class _Speech:
    """Speech while it grows. `shown` is all text that was emitted."""

    def __init__(self, offered: Iterable[str]) -> None:
        self.shown = False
        self._offered = frozenset(offered)
        self._text = ""
        self._place = 0
        """Position up to which the text has been emitted, or is a call."""
        self._search = 0
        self._begins = True
        """Whether it is still unknown how the text starts."""
        self._value = _FirstValue()
        self._resumes = False
        """Whether the next piece is the first one after a call."""
        self._called = False
        """Whether there is a call before `_place`."""
        self._region: tuple[int, str] | None = None
        """Start of an open call's content, and the pattern that ends it."""
        self._held = False
        """Whether the rest of the text can only be decided when it ends."""

    def add(self, speech: str, *, after_thought: bool) -> str:
        """The text that can be shown now. `after_thought`: the speech starts after a thought."""
        text, self._text = self._text, ""
        text += speech  # In place: no other reference to the text exists.
        self._text = text
        if self._begins and not self._held:
            self._begins = self._may_be_wrapped_or_call(after_thought)
        if self._begins or self._held:
            return ""
        pieces: list[str] = []
        while not self._held and self._step(pieces):
            pass
        return "".join(pieces)

    def _may_be_wrapped_or_call(self, after_thought: bool) -> bool:
        """Whether the text may still turn out to be a wrapped answer, or nothing but calls."""
        begin = len(self._text) - len(self._text.lstrip()) if self._search == 0 else self._search
        self._search = begin
        head = self._text[begin : begin + 200]
        if after_thought:
            for opening, _ in WRAPPINGS:
                if head.startswith(opening):
                    self._held = True
                if opening.startswith(head):
                    return True
        if self._offered and not self._held and self._may_be_call(head, begin):
            return True
        self._search = 0
        return False

    def _may_be_call(self, head: str, begin: int) -> bool:
        prefix = next((word for word in BARE_PREFIXES if head.startswith(word)), "")
        if not prefix and any(word.startswith(head) for word in BARE_PREFIXES):
            return True
        inner = head[len(prefix) :].lstrip() if prefix else head
        fence = _FENCE.match(inner)
        if fence is not None:
            inner = inner[fence.end() :]
        elif inner and any(literal.startswith(inner.replace(" ", "")) for literal in _FENCES):
            return True
        if not inner or self._names_tool_alone(inner):
            return True
        body = len(head) - len(inner)
        if inner[0] == "{":
            return self._value.kind(self._text, begin + body, self._offered) in ("open", "call")
        if inner[0] != "[":
            return self._names_tool(inner, "(")
        second = inner[1:2]
        if not second:
            return True
        if second in _JSON_LIST:
            kind = self._value.kind(self._text, begin + body, self._offered)
            if kind != "invalid":
                return kind != "other"
        return second in _PYTHON_LIST or self._names_tool(inner[1:], "( \t\r\n")

    def _names_tool_alone(self, text: str) -> bool:
        """Whether the first line may be a tool's name that is followed by an object."""
        line, newline, arguments = text.partition("\n")
        if not newline:
            return any(tool.startswith(line) for tool in self._offered)
        return line in self._offered and arguments.lstrip()[:1] in ("", "{")

    def _names_tool(self, text: str, followed_by: str) -> bool:
        """Whether the text may start with a call of an offered tool in Python syntax."""
        name = _IDENTIFIER.match(text)
        if name is None:
            return False
        plain_names = [*self._offered, *(GEMINI_MODULE + tool for tool in self._offered)]
        names = {form for tool in plain_names for form in (tool, f"{tool}.call")} | {"print"}
        normal = {unicodedata.normalize("NFKC", form) for form in names}
        if not name[0].isascii():
            # Python reads the name in its normalized form, which only the complete name has.
            plain = re.split(r"[^\x00-\x7f]", name[0], maxsplit=1)[0]
            may_be = any(form.startswith(plain) for form in normal)
            return may_be and (name.end() == len(text) or text[name.end()] in followed_by)
        if name.end() == len(text):
            return any(form.startswith(name[0]) for form in normal)
        return name[0] in normal and text[name.end()] in followed_by

    def _step(self, pieces: list[str]) -> bool:
        """Advance by one piece or call. False if more text is needed."""
        text = self._text
        if self._region is not None:
            return self._leave_call()
        if self._resumes and self._may_continue_call():
            return False
        opening = OPENING.search(text, self._search) if self._offered else None
        limit = len(text)
        if opening is not None:
            limit = opening.start()
        elif self._offered:
            tail = max(self._search, len(text) - LONGEST)
            partial = _UNFINISHED.search(text, tail)
            limit = len(text) if partial is None else partial.start()
        if self._offered and not self._called:
            section = self._section(limit)
            if section is not None:
                self._give(section, pieces)
                self._search = max(self._search, section)
                return False
        self._give(limit, pieces)
        if opening is None:
            self._search = limit
            return False
        self._called = True
        closing = REGIONS[opening[0]]
        if closing is None:
            self._held = True
            return False
        begin = opening.start() if opening[0] in INCLUSIVE else opening.end()
        self._region = begin, closing
        self._search = begin
        return True

    def _section(self, limit: int) -> int | None:
        """Position before `limit` at which a call with a line `>>>name` starts, or may start."""
        line = max(0, self._search - _MAX_SECTION_CHARS)
        for match in SECTION.finditer(self._text, line, limit):
            if match["name"] in self._offered:
                # Only a call in other markup turns it into text: that is known at the end.
                self._held = True
                return match.start()
        if limit < len(self._text):
            return None
        partial = _UNFINISHED_SECTION.search(self._text, max(line, limit - _MAX_SECTION_CHARS))
        return None if partial is None else partial.start()

    def _leave_call(self) -> bool:
        assert self._region is not None
        begin, closing = self._region
        text = self._text
        end = text.find(closing, self._search)
        if end < 0:
            self._search = max(begin, len(text) - len(closing) + 1)
            return False
        in_string = '"' in text[begin:end] and _in_string(text, begin, end)
        if in_string or ends_in_value(text, begin, end):
            # An end mark within a string of the call's JSON, or within the tags of a value: only
            # the whole text determines what the call is.
            self._held = True
            return False
        self._region = None
        self._place = self._search = end + len(closing)
        self._resumes = True
        return True

    def _may_continue_call(self) -> bool:
        """Skip stray ends after a call. Whether the rest of the text may become another one."""
        stray = STRAY_ENDS.match(self._text, self._place)
        if stray is not None:
            self._place = self._search = stray.end()
        return _UNFINISHED_END.match(self._text, self._place) is not None

    def _give(self, limit: int, pieces: list[str]) -> None:
        """Emit the text up to `limit`, without white space next to a call and at the end."""
        piece = self._text[self._place : limit]
        inner = piece.rstrip()
        if not inner:
            return
        self._place += len(inner)
        if self._resumes:
            inner = f"\n{inner.lstrip()}" if self.shown else inner.lstrip()
            self._resumes = False
        pieces.append(inner)
        self.shown = True


class VisibleThoughts:
    """Thoughts as displayed: without surrounding white space, separated by a blank line."""

    def __init__(self) -> None:
        self._shown: list[str] = []
        self._blank: list[str] = []
        self._begins = True

    @property
    def has_shown(self) -> bool:
        return bool(self._shown)

    @property
    def shown(self) -> str:
        return "".join(self._shown)

    def add(self, text: str) -> str:
        inner = text.rstrip()
        if not inner:
            if not self._begins:
                self._blank.append(text)
            return ""
        if self._begins:
            piece = ("\n\n" if self._shown else "") + inner.lstrip()
        else:
            piece = "".join(self._blank) + inner
        self._begins = False
        self._blank = [text[len(inner) :]]
        self._shown.append(piece)
        return piece

    def close(self) -> None:
        self._begins, self._blank = True, []


class VisibleContent:
    """Speech as displayed."""

    def __init__(self, offered: Iterable[str], *, after_thought: bool = False) -> None:
        self._speech = _Speech(offered)
        self._shown: list[str] = []
        self._blank: list[str] = []
        self._begins = True
        self._after_thought = after_thought
        self._gap = False
        """Whether a thought preceded what comes next."""
        self._last = ""

    @property
    def has_shown(self) -> bool:
        return bool(self._shown)

    @property
    def shown(self) -> str:
        return "".join(self._shown)

    def add(self, text: str) -> str:
        if not text:
            return ""
        if self._gap and self._last and not self._last.isspace() and not text[0].isspace():
            text = f" {text}"
        self._gap, self._last = False, text[-1]
        inner = text.rstrip()
        if not inner:
            self._blank.append(text)
            return ""
        speech = "".join(self._blank) + inner
        self._blank = [text[len(inner) :]]
        if self._begins and self._after_thought:
            speech = BLANK_LINES.sub("", speech)
        self._begins = False
        piece = self._speech.add(speech, after_thought=self._after_thought)
        if piece:
            self._shown.append(piece)
        return piece

    def close(self) -> None:
        """Record that a thought has ended after some speech."""
        self._gap = True
        self._after_thought = self._after_thought or self._begins


class _FirstValue:
    """The JSON value that a text starts with, while the text grows."""

    def __init__(self) -> None:
        self._position = -1
        self._depth = 0
        self._in_string = False
        self._kind: Literal["open", "call", "other", "invalid"] = "open"

    def kind(
        self, text: str, begin: int, offered: frozenset[str]
    ) -> Literal["open", "call", "other", "invalid"]:
        """`open` before its end, `call` if it is a call of an offered tool, `other` if it is not,
        `invalid` if it is not JSON."""
        if self._kind != "open":
            return self._kind
        if self._position < 0:
            self._position = begin
        if _NO_OBJECT.match(text, begin):
            self._kind = "invalid"
        elif self._closes(text):
            calls = calls_in_json(text[begin : self._position])
            if calls:
                self._kind = "call" if all(call.name in offered for call in calls) else "other"
            else:
                self._kind = "invalid"
        return self._kind

    def _closes(self, text: str) -> bool:
        """Read up to the value's end, if it has arrived."""
        while True:
            if self._in_string:
                inner = _IN_STRING.match(text, self._position)
                assert inner is not None
                self._position = inner.end()
                if not inner["end"]:
                    return False
                self._in_string = False
            bracket = _BRACKET.search(text, self._position)
            if bracket is None:
                self._position = len(text)
                return False
            self._position = bracket.end()
            if bracket[0] == '"':
                self._in_string = True
                continue
            self._depth += 1 if bracket[0] in "[{" else -1
            if self._depth <= 0:
                return True


def _in_string(text: str, begin: int, place: int) -> bool:
    """Whether a position is within a string of the JSON that starts at `begin`."""
    for string in _STRING.finditer(text, begin):
        if string.start() > place:
            return False
        if string.end() > place:
            return True
    return False
