"""Find the answer in a model's text.

In this order: the last non-empty `\\boxed{}` that isn't retracted; the last tag `<answer>`; the
first `####` followed by a number (GSM8K's mark), or the last one of several in a row; the value
that the text calls "the answer", unless it draws another conclusion later; the number in bold in
its last conclusion; else the whole text, of which the last number counts.

Before that, the model's thoughts and tokenizer marks are removed, and any text that it made up
after its answer, such as the next question of a prompt with examples.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from loopline.agents.thinking import text_without_thoughts

Place = Literal["box", "mark", "phrase", "bold", "text"]


@dataclass(frozen=True)
class Statement:
    """A part of a text that states its answer."""

    text: str
    place: Place


MAX_BOXES = 50
"""Maximum number of boxes, from the end, that are searched for a non-empty one."""

MAX_BOX = 2_000
"""Maximum length of a box that is read; a longer one is not an answer to a word problem."""

MAX_PHRASES = 20
"""Maximum number of phrases, from the end, that are searched for one that states an answer."""

# A backspace results from JSON that was unescaped once too often ("\\boxed" read as "\\b" +
# "oxed").
_BOX = re.compile(r"(?:\\(?:boxed|fbox)|\x08oxed|(?<![A-Za-z\\])boxed)\s{0,3}")
_BARE = re.compile(r"-?\$?[0-9][0-9,]{0,40}(?:\.[0-9]{1,40})?")
_PLACEHOLDER = re.compile(
    r"(?:[\s$_.…?\-~#]|\\(?:ldots|dots|cdots|square|boxed|phantom|quad)(?![A-Za-z])|[{}]"
    r"|(?:your|the|final|numeric(?:al)?|numerical|answer|result|value|number|here)\b)*",
    re.IGNORECASE,
)
_TAKEN_BACK = re.compile(
    r"[\s$.)\]\\]{0,9}(?:(?:is|was)\s(?:not\b|wrong\b|incorrect\b|false\b)|isn't\b|wasn't\b"
    r"|(?:can't|cannot) be\b)",
    re.IGNORECASE,
)
_BETWEEN_BOXES = re.compile(
    r"(?:[\s,;&$]|\\[,;: ()\[\]]|\\text\{\s?(?:and|or)\s?\}|\b(?:and|or)\b){0,12}"
)

_NEXT_QUESTION = re.compile(
    r"^[ \t>*#]{0,9}(?:Question|Problem|Q|Human|User|Instruction|Exercise|Input|问题|题目)"
    r"[ \t]{0,3}[0-9]{0,4}[*]{0,2}[ \t]{0,3}[:：]",
    re.MULTILINE | re.IGNORECASE,
)
_END_OF_TURN = re.compile(
    r"<\|(?:im_end|im_start|endoftext|eot_id|end_of_text|end|user|start_header_id)\|>|</s>|<eos>"
    r"|<end_of_turn>|\[/?INST\]"
)
_TAG = re.compile(r"<(?:final_?)?answer>([^<]{1,2000})</(?:final_?)?answer>", re.IGNORECASE)
_MARK = re.compile(r"(?<!#)#{4,}+[ \t]{0,9}([^\n#]{1,200})")
_ANSWERED_MARK = re.compile(r"(?<!#)#{4,}+[ \t$*]{0,9}-?\.?\d")
_MARKED = re.compile(r"(?:[\s*_$(`]|\\[$(\[]|\\boxed\{|[^\W\d_]{0,3}\$)*[-−–+]?[\s$]?\.?\d")
_HEADING = re.compile(r"[\s*_]*\d{1,3}\s?[.):]\s?[*_]*[^\W\d]")

_ANSWER = (
    r"(?:\b(?:answer|answers|antwort|respuesta|réponse|risposta|resposta|antwoord|odpowiedź|ответ)\b"
    r"|答案|答え|정답|答)"
)
_IS = (
    r"(?:\b(?:is|are|was|equals|ist|lautet|es|est|è|é|wynosi|это)\b|would be|will be|must be"
    r"|comes (?:out )?to|[:：=→]|为|是|は)"
)
_PHRASE = re.compile(rf"{_ANSWER}(?:[^\n.:：=→!?]{{0,60}}?){_IS}", re.IGNORECASE)
_NOT = re.compile(
    r"[\s*:]{0,9}(?:not\b|wrong\b|incorrect\b|in (?:the|a) box|below\b|unknown\b)", re.I
)
_SENTENCE_END = re.compile(r"[.!?。！？](?=[\s)\]*\"'”]|\[|$)|\n")
_TAKES_BACK = re.compile(
    r"\b(?:wait|actually|correction|oops|mistake|hold on|scratch that|let me re\w+)\b"
    r"|\bno,|\bshould be\b",
    re.IGNORECASE,
)
_CONCLUDES = re.compile(
    r"(?:^|[.!?:\n])[ \t*#>]{0,9}\n{0,3}[ \t*#>]{0,9}"
    r"(?:so|thus|therefore|hence|finally|in total|altogether|in all|overall)\b[^\n]{0,400}?\d",
    re.IGNORECASE,
)
_BOLD_CONCLUSION = re.compile(
    r"(?:^|[.!?\n])[ \t]{0,9}(?:so|thus|therefore|hence|finally|in total|altogether|in all)\b"
    r"(?P<rest>[^\n]{0,400})",
    re.IGNORECASE,
)
_BOLD = re.compile(r"\*\*([^*\n]{1,60})\*\*")


def statements(text: str) -> Iterator[Statement]:
    """Possible places of the answer, best first; the last one is the whole text."""
    text = _cut_after_answer(text)
    box = _last_box(text)
    if box is not None:
        yield Statement(box, "box")
        return
    mark = _tagged_answer(text) or _marked_answer(text)
    if mark is not None:
        yield Statement(mark, "mark")
    phrase = _phrase_answer(text)
    if phrase is not None:
        yield Statement(phrase, "phrase")
    bold = _bold_answer(text)
    if bold is not None:
        yield Statement(bold, "bold")
    yield Statement(text, "text")


def boxed_answers(text: str) -> list[str]:
    """The contents of a text's last boxes; the one that starts last comes first."""
    return [content for content, _, _ in _boxes_from_the_end(text)]


def _cut_after_answer(text: str) -> str:
    """The text up to its answer, without unrelated text after it, such as the next question."""
    text = text_without_thoughts(text)
    for end in _END_OF_TURN.finditer(text):
        if text[: end.start()].strip():
            text = text[: end.start()]
            break
    answers = (pattern.search(text) for pattern in (_BOX, _ANSWERED_MARK, _PHRASE))
    begins = min((answer.start() for answer in answers if answer), default=None)
    question = None if begins is None else _NEXT_QUESTION.search(text, begins)
    return text if question is None else text[: question.start()]


def _last_box(text: str) -> str | None:
    """The last non-empty box that is not retracted; if there are several next to each other, all of
    them."""
    neighbours: list[str] = []
    begins = 0
    for content, start, end in _boxes_from_the_end(text):
        if neighbours:
            if not _BETWEEN_BOXES.fullmatch(text[end:begins]) or end > begins:
                break
        elif _PLACEHOLDER.fullmatch(content) or _TAKEN_BACK.match(text, end):
            continue
        if content not in neighbours:
            neighbours.append(content)
        begins = start
    return " \\text{ and } ".join(reversed(neighbours)) if neighbours else None


def _boxes_from_the_end(text: str) -> Iterator[tuple[str, int, int]]:
    """The contents of the boxes with their start and end; the one that starts last comes first."""
    for match in reversed(deque(_BOX.finditer(text), maxlen=MAX_BOXES)):
        at = match.end()
        if text[at : at + 1] == "{":
            content, end = _balanced_content(text, at)
            yield content, match.start(), end
        elif text[match.start()] == "\\":
            bare = _BARE.match(text, at)
            if bare:
                yield bare[0], match.start(), bare.end()


def _balanced_content(text: str, opening: int) -> tuple[str, int]:
    """The text inside the brace at `opening`, and its end; up to the end of the line if the brace
    never closes."""
    depth = 0
    limit = min(len(text), opening + MAX_BOX)
    at = opening
    while at < limit:
        character = text[at]
        if character == "\\":
            at += 2
            continue
        if character == "{":
            depth += 1
        elif character == "}":
            depth -= 1
            if depth == 0:
                return text[opening + 1 : at], at + 1
        at += 1
    line = text[opening + 1 : limit].partition("\n")[0]
    return line, opening + 1 + len(line)


def _tagged_answer(text: str) -> str | None:
    """Content of the last tag with that name."""
    last = deque(_TAG.finditer(text), maxlen=1)
    return last[0][1] if last else None


def _marked_answer(text: str) -> str | None:
    """The text after `####`; None if that is a heading, or retracted."""
    last_match: re.Match[str] | None = None
    for match in _MARK.finditer(text):
        if not _MARKED.match(match[1]) or _HEADING.match(match[1]):
            continue
        if last_match is not None:
            between = text[last_match.end() : match.start()]
            if between.strip(" \t\n#") and not _TAKES_BACK.search(between):
                break
        last_match = match
    if last_match is None:
        return None
    behind = text[last_match.end() : last_match.end() + MAX_BOX]
    correction = _TAKES_BACK.search(behind)
    return None if correction and re.search(r"\d", behind[correction.end() :]) else last_match[1]


def _phrase_answer(text: str) -> str | None:
    """The value that the text last calls the answer; None if it draws another conclusion later."""
    for match in reversed(deque(_PHRASE.finditer(text), maxlen=MAX_PHRASES)):
        if _NOT.match(text, match.end()):
            continue
        begin = match.end()
        while begin < len(text) and text[begin] in " \t\n*_":
            begin += 1
        end = _SENTENCE_END.search(text, begin)
        stop = end.start() if end else len(text)
        behind = text[stop:]
        if _TAKES_BACK.search(behind) or _CONCLUDES.search(behind):
            return None
        sign = text[match.end() - 1]
        return f"{sign} {text[begin:stop]}" if sign in ":=：" else text[begin:stop]
    return None


def _bold_answer(text: str) -> str | None:
    """The only bold text in the text's last conclusion."""
    last = deque(_BOLD_CONCLUSION.finditer(text), maxlen=1)
    bold = _BOLD.findall(last[0]["rest"]) if last else []
    return bold[0] if len(bold) == 1 else None
