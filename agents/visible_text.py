"""The parts of a model's text that can be shown while it is generated: its thoughts, and its
speech.

A reader of the whole text (`loopline.agents.thinking`, `loopline.agents.call_markup`) may look at
its end before it decides about its start. Here, a piece is emitted as soon as no later text can
change its kind. So all pieces together equal the result of the whole-text readers, and the output
depends only on the text, not on how it was split.

There is one exception: a thought without an opening (`…</think>`, a late channel of gpt-oss) is
only recognized at its end. If part of it has been shown as content, it stays; the answer follows
after a blank line, and `corrected` is true. `opened` prevents that.

Each character is read a bounded number of times.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from loopline.agents.call_markup import strip_calls
from loopline.agents.records import JsonObject
from loopline.agents.thinking import (
    BARE_FINAL,
    CHANNEL,
    CHANNEL_END,
    DELIMITERS,
    GLUED,
    MARKS,
    MENTION,
    QUOTES,
    WORDS_BEFORE,
    WORDS_BETWEEN,
    calls_function,
    is_balanced,
    is_final,
    is_quoted,
    split_thoughts,
)
from loopline.agents.visible_speech import LONGEST, VisibleContent, VisibleThoughts, unfinished

_LITERALS = (
    ["[THINK]", "[/THINK]", "◁think▷", "◁/think▷", "<|START_THINKING|>", "<|END_THINKING|>",
     "<|begin_of_thought|>", "<|end_of_thought|>", "<|inner_prefix|>", "<|inner_suffix|>",
     "<|channel>thought ", "<channel|>", "[unused16]", "[unused17]", "<|start|>", "<|channel|>",
     "<|open|>think<|sep|>", "<|close|>think<|sep|>", "<|plamo:begin_think:plamo|>",
     "<|plamo:end_think:plamo|>", "<|think|>", "<|end|><|begin|>assistant<|content|>",
     "<|end|><|begin|>assistant<|tool_calls|>"]
)  # fmt: skip
_UNFINISHED_LITERAL = unfinished(_LITERALS).pattern
_UNFINISHED = re.compile(
    rf"</?(?i:[a-z]{{0,16}}(?:[:_|][a-z_]{{0,11}}(?::[a-z]{{0,10}})?)?|scratch_?p?a?d?(?::[a-z]{{0,10}})?)\Z|{_UNFINISHED_LITERAL}"
)
"""Text that may become a delimiter, or the start of a channel."""
_UNFINISHED_MARK = re.compile(
    r"(?:(?m:^)|(?<=[>\]▷]))[ \t]{0,8}(?:`{0,2}|~{0,2}|(?:```|~~~)[`~]{0,100}+[^\n`]{0,200}+)\Z"
    r"|(?<![`\w])`(?:[^`\s](?:[^`\n]{0,501}+(?=\Z)|[^`\n]{0,500}[^`\s]`|`))?\Z"
)
"""Text that may become a fence, inline code, or the end of inline code that isn't certain yet."""
_CHANNEL_BEGIN = re.compile(r"<\|(?:start|channel)\|>")
_UNFINISHED_CHANNEL_END = unfinished(
    f"<|{n}|>" for n in ("end", "return", "call", "start", "channel")
)
_MESSAGE = "<|message|>"
_UNFINISHED_HEADER = re.compile(
    r"(?:<\|start\|>[^<]{0,200}+)?(?:<\|channel\|>[^<]{0,200}+(?:<\|constrain\|>[^<]{0,100}+)?)?"
    r"(?:<[|a-z>]{0,12}+)?\Z"
)
"""Text that may become the header of a channel's message."""
_BE = ("'s", "’s", " is")
_SPACE = re.compile(r"\s*")
_UNFINISHED_WORDS_BETWEEN = re.compile(
    unfinished(f"here{be} my response:" for be in _BE).pattern, re.IGNORECASE
)
_BARE_FINAL = re.compile(BARE_FINAL)
_UNFINISHED_BARE_FINAL = unfinished([BARE_FINAL])
_FIRST_CHANNELS = tuple(f"{name}{_MESSAGE}" for name in ("analysis", "commentary", "final"))
_UNFINISHED_HEAD = re.compile(
    rf"(?i:{unfinished(f'here{be} my thought process:' for be in _BE).pattern})"
    rf"|{unfinished((*_FIRST_CHANNELS, 'assistantanalysis')).pattern}"
)
_DELIMITER_OR_CHANNEL = re.compile(rf"{DELIMITERS.pattern}|{_CHANNEL_BEGIN.pattern}")
_BARE = re.compile(r"(?:assistant)?analysis")
_MAX_BLANKS = 200
_MAX_MARK_CHARS = 530

Kind = Literal["content", "reasoning"]


@dataclass(frozen=True, slots=True)
class TextPiece:
    """A piece of a model's text that can be shown."""

    kind: Kind
    text: str


class VisibleText:
    """Visible parts of one completion. `opened`: its prompt ended within a thought that was opened
    there. `offered`: the names of the offered tools; without any, call markup is text."""

    def __init__(self, opened: bool = False, offered: Iterable[str] = ()) -> None:
        self.corrected = False
        """Whether some shown text turned out to be something else."""
        self._opened = opened
        self._offered: dict[str, JsonObject] = {name: {} for name in offered}
        self._text = ""
        self._place = 0
        """Position up to which the kind of the text is known."""
        self._scan = 0
        """Position up to which marks were read."""
        self._mode: Callable[[VisibleText], bool] = VisibleText._begin
        """Makes one decision; False if it needs more text. Not a bound method, which would refer to
        this object: such cycles wait for the garbage collector."""
        self._depth = 0
        self._certain: bool | None = False
        """Whether the open thought is certain, however the text ends."""
        self._inner_end = False
        """Whether an end, which may have been the last one, was read within the open thought."""
        self._opening = (0, 0)
        """Start and end of the open thought's delimiter."""
        self._fence: list[_Mark] | None = None
        """Marks after a fence that may open a code block."""
        self._fence_depth = 0
        self._channel_scan = 0
        """Position before which no message of a channel starts."""
        self._until = (WORDS_BETWEEN, _UNFINISHED_WORDS_BETWEEN)
        """Patterns that end the thought, if no delimiter does."""
        self._message: Literal["content", "reasoning", "call"] | None = None
        """Kind of the open message of a channel."""
        self._pieces: list[TextPiece] = []
        self._reasoning = VisibleThoughts()
        self._content = VisibleContent(self._offered)
        self._separator = ""
        self._ended = False

    def feed(self, piece: str) -> list[TextPiece]:
        """The pieces that can be shown once the text continues with `piece`."""
        if self._ended:
            raise ValueError("the text has ended: a VisibleText reads one completion")
        begin = 0
        while begin < len(piece):
            # The header of a channel's message changes the kind of all text before it: text after
            # it must not influence the decision about that text.
            tail = self._text[-len(_MESSAGE) + 1 :] + piece[begin : begin + len(_MESSAGE)]
            end = tail.find(_MESSAGE)
            if end >= 0:
                end += len(_MESSAGE) - (len(tail) - len(piece[begin : begin + len(_MESSAGE)]))
                end += begin
            else:
                end = piece.find(_MESSAGE, begin)
                end = len(piece) if end < 0 else end + len(_MESSAGE)
            # In place, if no other reference exists: otherwise, every piece would copy a long text.
            text, self._text = self._text, ""
            text += piece[begin:end]
            self._text = text
            del text
            begin = end
            while self._mode(self):
                pass
        return self._take_pieces()

    def finish(self) -> list[TextPiece]:
        """The remaining pieces: the text has ended."""
        self._ended = True
        whole = split_thoughts(self._text, opened=self._opened)
        content = whole.visible
        if self._offered:
            content = strip_calls(self._text, self._offered, opened=self._opened)
        if whole.thought.startswith(self._reasoning.shown):
            self._give("reasoning", whole.thought[len(self._reasoning.shown) :])
        else:
            self.corrected = True
        if not content.startswith(self._content.shown):
            self._correct()
        self._give("content", content[len(self._content.shown) :])
        return self._take_pieces()

    def _take_pieces(self) -> list[TextPiece]:
        pieces, self._pieces = self._pieces, []
        return pieces

    def _give(self, kind: Kind, text: str) -> None:
        if not text:
            return
        if kind == "content":
            text, self._separator = self._separator + text, ""
        last = self._pieces[-1] if self._pieces else None
        if last is not None and last.kind == kind:
            self._pieces[-1] = TextPiece(kind, last.text + text)
        else:
            self._pieces.append(TextPiece(kind, text))

    def _correct(self) -> None:
        """Record that no speech so far belongs to the content."""
        if self._content.has_shown:
            self.corrected = True
            self._separator = "\n\n"
        self._content = VisibleContent(self._offered, after_thought=True)

    def _say(self, start: int, end: int) -> None:
        self._give("content", self._content.add(self._text[start:end]))

    def _think(self, start: int, end: int) -> None:
        self._give("reasoning", self._reasoning.add(self._text[start:end]))

    def _end_thought(self, end: int) -> None:
        self._reasoning.close()
        self._content.close()
        self._place = end

    # The start of the text.

    def _begin(self) -> bool:
        text = self._text
        head = self._scan = _end(_SPACE, text, self._scan)
        if head == len(text) or _UNFINISHED.match(text, head) or _UNFINISHED_HEAD.match(text, head):
            return False
        self._scan = 0
        opening = DELIMITERS.match(text, head)
        if not self._opened and text[head] in "{[" and opening is None:
            self._mode = VisibleText._in_json
            return True
        first = CHANNEL.match(text) if text.startswith(_FIRST_CHANNELS, head) else None
        if first is not None:
            self._open_message(first)
        elif (words := WORDS_BEFORE.match(text, head)) is not None:
            self._place = self._scan = words.end()
            self._mode = VisibleText._in_thought_until
        elif (bare := _BARE.match(text, head)) is not None:
            if bare.end() == len(text):
                return False
            self._place = self._scan = bare.end()
            self._until = (_BARE_FINAL, _UNFINISHED_BARE_FINAL)
            glued = GLUED.match(text, self._place) is not None
            self._mode = VisibleText._in_thought_until if glued else VisibleText._before_bare_final
        else:
            if self._opened and (opening is None or not opening["opening"]):
                self._depth, self._certain = 1, True
            self._mode = VisibleText._between_delimiters
        return True

    def _in_json(self) -> bool:
        """Treat the text as JSON: if it is JSON to its end, all of it is text."""
        delimiter = _DELIMITER_OR_CHANNEL.search(self._text, self._scan)
        limit = self._limit() if delimiter is None else delimiter.start()
        self._say(self._place, limit)
        self._place = self._scan = limit
        if delimiter is not None:
            self._mode = VisibleText._to_the_end
        return False

    def _to_the_end(self) -> bool:
        """Wait for the end: only the whole text decides."""
        return False

    def _in_thought_until(self) -> bool:
        bound, header = self._next_channel()
        pattern, unfinished_end = self._until
        closing = pattern.search(self._text, self._scan, bound)
        if closing is not None:
            self._think(self._place, closing.start())
            self._end_thought(closing.end())
            self._mode = VisibleText._after_thought
            return True
        tail = unfinished_end.search(self._text, max(self._scan, len(self._text) - LONGEST))
        limit = min(bound, self._limit(), len(self._text) if tail is None else tail.start())
        self._think(self._place, limit)
        self._place = self._scan = max(limit, self._place)
        return self._opens_message(header)

    def _before_bare_final(self) -> bool:
        """Decide whether this is a thought, if the final channel's word follows, or ordinary
        text."""
        bound, header = self._next_channel()
        closing = _BARE_FINAL.search(self._text, self._scan, bound)
        if closing is not None:
            self._mode = VisibleText._in_thought_until
            return True
        self._scan = max(self._scan, len(self._text) - len(BARE_FINAL))
        return self._opens_message(header)

    def _after_thought(self) -> bool:
        bound, header = self._next_channel()
        limit = min(bound, self._limit())
        self._say(self._place, limit)
        self._place = max(limit, self._place)
        return self._opens_message(header)

    def _limit(self) -> int:
        """Position at which a delimiter may start at the text's end."""
        tail = max(self._place, self._scan, len(self._text) - LONGEST)
        partial = _UNFINISHED.search(self._text, tail)
        return len(self._text) if partial is None else partial.start()

    # Messages of channels.

    def _next_channel(self) -> tuple[int, re.Match[str] | None]:
        """Position at which a message's header starts, or may start, and the header if it is
        complete."""
        text = self._text
        while True:
            begin = _CHANNEL_BEGIN.search(text, self._channel_scan)
            if begin is None:
                self._channel_scan = max(self._channel_scan, len(text) - len("<|channel|>") + 1)
                return len(text), None
            header = CHANNEL.match(text, begin.start())
            if header is not None or _UNFINISHED_HEADER.match(text, begin.start()):
                self._channel_scan = begin.start()
                return begin.start(), header
            self._channel_scan = begin.start() + 1

    def _opens_message(self, header: re.Match[str] | None) -> bool:
        if header is not None:
            self._open_message(header)
        return header is not None

    def _open_message(self, header: re.Match[str]) -> None:
        if self._mode is not VisibleText._in_channels:
            self._correct()
            self._reasoning.close()
            self._mode = VisibleText._in_channels
        self._place = self._scan = self._channel_scan = header.end()
        if is_final(header):
            self._message = "content"
        else:
            self._message = "call" if calls_function(header) else "reasoning"

    def _in_channels(self) -> bool:
        if self._message is None:
            return self._opens_message(self._next_channel()[1])
        text = self._text
        closing = CHANNEL_END.search(text, self._scan)
        if closing is not None:
            limit = closing.start()
        else:
            partial = _UNFINISHED_CHANNEL_END.search(text, max(self._scan, len(text) - LONGEST))
            limit = len(text) if partial is None else partial.start()
        if self._message == "content":
            self._say(self._place, limit)
        elif self._message == "reasoning":
            self._think(self._place, limit)
        self._place = self._scan = limit
        if closing is None:
            return False
        self._message = None
        self._channel_scan = limit
        self._end_thought(limit)
        return True

    # Thoughts between delimiters: `loopline.agents.thinking` defines the marks.

    def _between_delimiters(self) -> bool:
        text = self._text
        bound, header = self._next_channel()
        if self._depth and self._certain is None:
            self._certain = self._opens_thought()
        mark = MARKS.search(text, self._scan)
        if mark is not None and mark.end() <= bound and self._is_final(mark):
            self._scan = mark.end()
            self._read(mark)
            return True
        delimiter = None if mark is None else DELIMITERS.search(text, self._scan)
        limit = min(bound, self._limit() if delimiter is None else delimiter.start())
        self._pass(limit)
        if header is None:
            # A mark that may turn out not to be one is checked again, and so is text that may
            # become one.
            partial = _UNFINISHED_MARK.search(text, max(self._scan, len(text) - _MAX_MARK_CHARS))
            begins = [match.start() for match in (mark, partial) if match is not None]
            self._scan = min([limit, *begins])
        return self._opens_message(header)

    def _is_final(self, mark: re.Match[str]) -> bool:
        """Whether the mark is one, regardless of later text."""
        text, start = self._text, mark.start()
        if mark.end() == len(text) and (
            (start > 0 and text[start - 1] in QUOTES) or _UNFINISHED.match(text, start)
        ):
            return False
        partial = _UNFINISHED_MARK.search(text, max(self._scan, len(text) - _MAX_MARK_CHARS))
        return partial is None or partial.start() > start

    def _read(self, mark: re.Match[str]) -> None:
        if mark["fence"]:
            self._read_fence(mark["info"])
            return
        if mark["code"] is not None:
            if DELIMITERS.search(self._text, *mark.span("code")) is None:
                return
            entry = _Mark("code", *mark.span("code"))
        elif is_quoted(self._text, mark):
            return
        else:
            entry = _Mark("opening" if mark["opening"] else "end", *mark.span())
        if self._fence is None:
            self._take(entry)
            return
        self._fence.append(entry)
        if entry.kind != "code":
            self._fence_depth += 1 if entry.kind == "opening" else -1
        if self._fence_depth < 0:
            self._take_from_fence()

    def _read_fence(self, info: str) -> None:
        if self._fence is not None:
            if not info.strip():
                self._fence = None
                return
            self._take_from_fence()
        if self._depth == 0:
            self._fence, self._fence_depth = [], 0

    def _take_from_fence(self) -> None:
        """Continue after a fence that opens no code block: the following marks are ordinary
        ones."""
        marks, self._fence = self._fence or [], None
        for mark in marks:
            self._take(mark)

    def _take(self, mark: _Mark) -> None:
        if mark.kind == "opening":
            self._take_opening(mark)
        elif mark.kind == "end":
            self._take_end(mark)
        else:
            inner = [
                match
                for match in DELIMITERS.finditer(self._text, mark.start, mark.end)
                if not is_quoted(self._text, match)
            ]
            if self._depth or not is_balanced(inner):
                for match in inner:
                    self._take(_Mark("opening" if match["opening"] else "end", *match.span()))

    def _take_opening(self, mark: _Mark) -> None:
        if self._depth == 0:
            self._pass(mark.start)
            self._place = mark.end
            self._opening, self._inner_end = (mark.start, mark.end), False
            self._certain = self._opens_thought()
        self._depth += 1

    def _take_end(self, mark: _Mark) -> None:
        if self._depth == 0:
            self._pass(mark.start)
            if not (self._content.has_shown or self._reasoning.has_shown):
                self._think(0, mark.start)
            self._correct()
            self._end_thought(mark.end)
            return
        self._certain, self._inner_end = True, False
        self._pass(mark.start)
        self._depth -= 1
        self._inner_end = self._depth > 0
        if self._depth == 0:
            self._end_thought(mark.end)

    def _pass(self, limit: int) -> None:
        """Show the text up to `limit`, as far as its kind is known."""
        if self._fence:
            limit = min(limit, self._fence[0].start)
        if limit <= self._place:
            return
        if self._depth == 0:
            self._say(self._place, limit)
        elif self._certain and not self._inner_end:
            self._think(self._place, limit)
        else:
            return
        self._place = limit

    def _opens_thought(self) -> bool | None:
        """Whether the opening is one even if it is never closed, and isn't a mention in a sentence;
        None before that is known."""
        start, end = self._opening
        before = self._text[max(0, start - _MAX_BLANKS) : start]
        line = before.rpartition("\n")
        if (line[1] or start <= _MAX_BLANKS) and not line[2].strip():
            return True
        following = self._text[end : end + _MAX_BLANKS]
        if not following.strip(" \t"):
            return None if len(following) < _MAX_BLANKS else False
        return MENTION.match(following) is None


@dataclass(frozen=True, slots=True)
class _Mark:
    kind: Literal["opening", "end", "code"]
    start: int
    end: int


def _end(pattern: re.Pattern[str], text: str, begin: int) -> int:
    match = pattern.match(text, begin)
    return begin if match is None else match.end()
