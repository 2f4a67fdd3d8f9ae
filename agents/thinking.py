"""Separate a model's thoughts from its text; the only module that decides this.

A reasoning model writes its thoughts between delimiters before its answer (`<think>…</think>` and
similar ones), as messages of a separate channel (gpt-oss), or after fixed words (Granite). Attempts
that it rejected there are not answers, calls, or claimed equations. So all code that reads a
model's text reads only the text without thoughts; the thoughts stay next to it in the record.

- An opening without its end is thought to the end of the text: the model ran out of tokens.
- An end without its opening has only thought before it: the opening was in the prompt.
- Delimiters nest. A mention within a thought doesn't keep it open: it then ends at the last end.
- A quoted delimiter (in quotation marks, in code) is text, and so is one in a text that is one JSON
  value: a schema constrained the model to it.

Every scan is linear in the text. The delimiters are those that the parsers of vLLM, SGLang and
llama.cpp know.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

_NAMED = (
    r"(?:[a-z]{1,16}[:_|]|ant)?(?:think(?:ing)?|thoughts?|reasoning|scratch_?pad)(?::opensource)?>"
)
_OPENINGS = (
    rf"(?i:<{_NAMED})",
    r"\[THINK\]",
    r"◁think▷",
    r"<\|START_THINKING\|>",
    r"<\|begin_of_thought\|>",
    r"<\|inner_prefix\|>",
    r"<\|channel>thought\b",
    r"\[unused16\]",
    r"<\|open\|>think<\|sep\|>",
    r"<\|plamo:begin_think:plamo\|>",
    r"<\|think\|>",
    r"<unused94>(?:thought\b)?",
)
_ENDS = (
    rf"(?i:</{_NAMED})",
    r"\[/THINK\]",
    r"◁/think▷",
    r"<\|END_THINKING\|>",
    r"<\|end_of_thought\|>",
    r"<\|inner_suffix\|>",
    r"<channel\|>",
    r"\[unused17\]",
    r"<\|close\|>think<\|sep\|>",
    r"<\|plamo:end_think:plamo\|>",
    r"<\|end\|><\|begin\|>assistant<\|(?:content|tool_calls)\|>",
    r"<unused95>",
)
_DELIMITER = rf"(?P<opening>{'|'.join(_OPENINGS)})|(?P<end>{'|'.join(_ENDS)})"
DELIMITERS = re.compile(_DELIMITER)
MARKS = re.compile(
    rf"{_DELIMITER}"
    r"|(?:(?m:^)|(?<=[>\]▷]))[ \t]{0,8}(?P<fence>```|~~~)[`~]{0,100}+(?P<info>[^\n`]{0,200}+)(?m:$)"
    # Inline code: only text that directly touches the marks, or it would pair any two marks.
    r"|(?<![`\w])`(?P<code>[^`\s](?:[^`\n]{0,500}[^`\s])?)`(?![`\w])"
)
QUOTES = {'"': '"', "'": "'", "`": "`", "“": "”", "‘": "’", "«": "»", "„": "“"}
MENTION = re.compile(r"[ \t]+\S|[ \t]*[,.;:!?)]")
"""Text after a delimiter that is mentioned in the middle of a sentence."""

CHANNEL = re.compile(
    r"(?:<\|start\|>[^<]{0,200})?<\|channel\|>(?P<name>[^<]{0,200})(?:<\|constrain\|>[^<]{0,100})?"
    r"<\|message\|>|\A\s*(?P<first>analysis|commentary|final)<\|message\|>"
)
CHANNEL_END = re.compile(r"<\|(?:end|return|call|start|channel)\|>")
BARE_CHANNEL = re.compile(r"\s*(?:assistant)?analysis")
GLUED = re.compile(r"[^\Wa-z_]")
BARE_FINAL = "assistantfinal"
"""Name of the final channel from a server that leaves out control tokens: the channels' names are
joined to their contents."""
WORDS_BEFORE = re.compile(r"\s*here(?:'s|’s| is) my thought process:", re.IGNORECASE)
WORDS_BETWEEN = re.compile(r"here(?:'s|’s| is) my response:", re.IGNORECASE)

WRAPPINGS = (
    ("<|begin_of_solution|>", "<|end_of_solution|>"),
    ("<|START_RESPONSE|>", "<|END_RESPONSE|>"),
    ("<|START_TEXT|>", "<|END_TEXT|>"),
    ("<|open|>response<|sep|>", "<|close|>response<|sep|>"),
    ("<|begin_of_box|>", "<|end_of_box|>"),
    ("<answer>", "</answer>"),
    ("<response>", "</response>"),
    ("<output>", "</output>"),
    ("<Output>", "</Output>"),
)
"""Marks around the whole text after a thought."""
BLANK_LINES = re.compile(r"\A(?:[ \t]*\r?\n)+")


@dataclass(frozen=True, slots=True)
class SplitText:
    """A text without its thoughts, and the thoughts."""

    visible: str
    """The text itself, unchanged, if it contains no thought; else without white space at its end,
    and without the blank lines after a thought."""
    thought: str
    """Thoughts without delimiters and function calls; blocks are separated by a blank line."""
    spans: tuple[tuple[int, int], ...] = ()
    """Start and end of each thought in the text, including delimiters, in order."""


@lru_cache(maxsize=8)  # a call's text is split for its journal, its history and its answer
def split_thoughts(text: str, *, opened: bool = False) -> SplitText:
    """Split a model's text. `opened`: its prompt ended within a thought that was opened there."""
    if not text or (not opened and _is_json(text)):
        return SplitText(text, "")
    if opened and repeats_opening(text):
        opened = False
    spans, thought_in = _spans(text, opened)
    if not spans:
        return SplitText(text, "")
    thoughts = [thought_in(text[start:end]).strip() for start, end in spans]
    return SplitText(
        visible=_join_spans(text, spans),
        thought="\n\n".join(filter(None, thoughts)),
        spans=tuple(spans),
    )


def repeats_opening(text: str) -> bool:
    """Whether a text starts with the opening that its prompt has already written."""
    mark = DELIMITERS.match(text.lstrip())
    return mark is not None and mark["opening"] is not None


def text_without_thoughts(text: str, *, opened: bool = False) -> str:
    """A model's text without thoughts. Empty if there is nothing else."""
    return split_thoughts(text, opened=opened).visible


def opens_thought(prompt: str) -> bool:
    """Whether a prompt ends with the opening of a thought, so that a completion starts in it."""
    last = _final_delimiter(prompt[-100:].rstrip()[-64:])
    return last is not None and last["opening"] is not None


def _is_json(text: str) -> bool:
    if text.lstrip()[:1] not in ("{", "["):
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _spans(text: str, opened: bool) -> tuple[list[tuple[int, int]], Callable[[str], str]]:
    """Spans of the thoughts, and a function that returns the thought in one of these spans."""
    channels = _channel_spans(text)
    if channels is not None:
        return channels, _contents
    heading = WORDS_BEFORE.match(text)
    if heading is not None:
        closing = WORDS_BETWEEN.search(text, heading.end())
        return [(0, len(text) if closing is None else closing.end())], _after_heading
    bare = BARE_CHANNEL.match(text)
    if bare is not None:
        final = text.find(BARE_FINAL)
        if final >= 0:
            return [(0, final + len(BARE_FINAL))], _after_channel_name
        if GLUED.match(text, bare.end()):
            return [(0, len(text))], _after_channel_name
    if not opened and DELIMITERS.search(text) is None:
        return [], _strip_delimiters
    return _delimited(text, opened), _strip_delimiters


def _channel_spans(text: str) -> list[tuple[int, int]] | None:
    """Spans of everything but the contents of channel `final`; None for text without channels."""
    headers = list(CHANNEL.finditer(text))
    if not headers:
        return None
    spans: list[tuple[int, int]] = []
    begin = 0
    for header in headers:
        if not is_final(header):
            continue
        ended = CHANNEL_END.search(text, header.end())
        if header.end() > begin:
            spans.append((begin, header.end()))
        begin = len(text) if ended is None else ended.start()
    return spans if begin == len(text) else [*spans, (begin, len(text))]


def _delimited(text: str, opened: bool) -> list[tuple[int, int]]:
    """The spans between delimiters."""
    spans: list[tuple[int, int]] = []
    start, depth, ended = 0, int(opened), -1
    """State of the open thought: its start, its depth, and the last end within it."""
    for mark in _unquoted_delimiters(text, opened):
        if mark["opening"]:
            if depth == 0:
                start, ended = mark.start(), -1
            depth += 1
            continue
        depth, ended = depth - 1, mark.end()
        if depth < 0:
            # No thought was open: everything before was a thought.
            spans, start, depth = [], 0, 0
        if depth == 0:
            spans.append((start, ended))
    if depth == 0:
        return spans
    if ended >= 0:
        # An extra opening was only mentioned. Text that is open after the last end is another
        # thought.
        spans.append((start, ended))
        start = next(
            (m.start() for m in _unquoted_delimiters(text, False, ended) if m["opening"]), -1
        )
    elif opened and start == 0:
        return [(0, len(text))]
    if start >= 0 and _is_opened_at(text, start):
        spans.append((start, len(text)))
    return spans


def _unquoted_delimiters(text: str, opened: bool, begin: int = 0) -> list[re.Match[str]]:
    """The delimiters that are not part of a quotation, in order."""
    marks = [mark for mark in MARKS.finditer(text, begin) if not is_quoted(text, mark)]
    fences = [place for place, mark in enumerate(marks) if mark["fence"]]
    following = dict(itertools.pairwise(fences))
    matches: list[re.Match[str]] = []
    depth, place = int(opened), 0
    while place < len(marks):
        mark = marks[place]
        if mark["code"] is not None:
            # Within a thought, models do not close what they open: a code mark means nothing there.
            begin, end = mark.span("code")
            inner = [m for m in DELIMITERS.finditer(text, begin, end) if not is_quoted(text, m)]
            if depth or not is_balanced(inner):
                matches += inner
                depth = _depth(depth, inner)
        elif mark["fence"]:
            closing = following.get(place)
            if not depth and closing is not None and not marks[closing]["info"].strip():
                inner = [
                    inner_mark
                    for inner_mark in marks[place + 1 : closing]
                    if not inner_mark["code"]
                ]
                if is_balanced(inner):
                    place = closing
        else:
            matches.append(mark)
            depth = _depth(depth, [mark])
        place += 1
    return matches


def _depth(depth: int, marks: list[re.Match[str]]) -> int:
    for mark in marks:
        depth = max(0, depth + (1 if mark["opening"] else -1))
    return depth


def is_balanced(marks: list[re.Match[str]]) -> bool:
    """Whether every end has an opening before it."""
    depth = 0
    for mark in marks:
        depth += 1 if mark["opening"] else -1
        if depth < 0:
            return False
    return True


def is_quoted(text: str, mark: re.Match[str]) -> bool:
    if mark.start() == 0 or not (mark["opening"] or mark["end"]):
        return False
    closing = QUOTES.get(text[mark.start() - 1])
    return closing is not None and text.startswith(closing, mark.end())


def _is_opened_at(text: str, start: int) -> bool:
    """Whether an unclosed opening really is one, and not a mention in a sentence."""
    line = text.rfind("\n", 0, start) + 1
    mark = DELIMITERS.match(text, start)
    return not text[line:start].strip() or mark is None or not MENTION.match(text, mark.end())


def _after_heading(thought: str) -> str:
    heading = WORDS_BEFORE.match(thought)
    return WORDS_BETWEEN.sub("", thought[0 if heading is None else heading.end() :])


def _after_channel_name(thought: str) -> str:
    bare = BARE_CHANNEL.match(thought)
    return thought[0 if bare is None else bare.end() :].removesuffix(BARE_FINAL)


def ends_thought(text: str) -> bool:
    """Whether a text ends with the end of a thought."""
    last = _final_delimiter(text.rstrip()[-64:])
    return last is not None and last["end"] is not None


def _strip_delimiters(thought: str) -> str:
    """The contents of one span."""
    first = DELIMITERS.match(thought.lstrip())
    inner = thought.lstrip()[first.end() :] if first is not None and first["opening"] else thought
    last = _final_delimiter(inner[-64:])
    ends = last is not None and last["end"]
    return inner[: len(inner) - len(last[0])] if last is not None and ends else inner


def _final_delimiter(text: str) -> re.Match[str] | None:
    """The delimiter that the text ends with."""
    marks = [mark for mark in DELIMITERS.finditer(text) if mark.end() == len(text)]
    return marks[0] if marks else None


def _contents(text: str) -> str:
    """The thoughts of the messages in a span between two messages of `final`."""
    headers = list(CHANNEL.finditer(text))
    ends = [*(header.start() for header in headers[1:]), len(text)]
    thoughts = [
        CHANNEL_END.split(text[header.end() : end], maxsplit=1)[0].strip()
        for header, end in zip(headers, ends, strict=False)
        if not calls_function(header)
    ]
    return "\n\n".join(filter(None, thoughts))


def is_final(header: re.Match[str]) -> bool:
    """Whether a message of a channel is the answer. A format may follow the channel's name."""
    return (header["name"] or header["first"] or "").split()[:1] == ["final"]


def calls_function(header: re.Match[str]) -> bool:
    """Whether a message of a channel is for a function: a call, not a thought."""
    return " to=" in header[0]


def _join_spans(text: str, spans: list[tuple[int, int]]) -> str:
    """The text between the spans."""
    pieces: list[str] = []
    begin = 0
    for start, end in [*spans, (len(text), len(text))]:
        piece = text[begin:start]
        if piece:
            # Two halves of a word, or of a delimiter, must not be joined.
            if pieces and not pieces[-1][-1].isspace() and not piece[0].isspace():
                pieces.append(" ")
            pieces.append(piece)
        begin = end
    joined = "".join(pieces).rstrip()
    if text[: spans[0][0]].strip():
        return joined
    return _unwrap(BLANK_LINES.sub("", joined))


def _unwrap(text: str) -> str:
    inner = text.strip()
    for opening, end in WRAPPINGS:
        if inner.startswith(opening) and inner.endswith(end) and inner.count(opening) == 1:
            return inner[len(opening) : -len(end)].strip()
        if inner.startswith(opening) and end not in inner:
            # The end is the server's stop word, or the model ran out of tokens.
            return inner[len(opening) :].strip()
    return text
