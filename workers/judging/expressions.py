r"""The structure of an answer in LaTeX: a list, a tuple or interval, a union, a relation, words, or
one expression. Two answers are the same if their structures match and their expressions match part
by part. So `(1,2)` is not `(2,1)`, `1,2` is `2,1`, and `3x+4y+14=0` is not `0`.

Pure: decisions that need computer algebra are left to a `Leaves`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from loopline.workers.judging.notation import in_one_notation
from loopline.workers.judging.units import unit_of
from loopline.workers.judging.written_numbers import (
    PREFIX,
    quantities_agree,
    written_number,
    written_numbers_agree,
)

MAX_PARTS = 64
"""Longest list or tuple that is compared part by part; a longer one is compared as text."""


class Leaves(Protocol):
    """Compares expressions, and relations, intervals and unions of expressions."""

    def same(self, answer: str, gold: str) -> bool: ...


_ELLIPSIS = re.compile(r"\\[lc]?dots(?![A-Za-z])|\.\.\.|…")
_PLUS_MINUS = re.compile(r"\\pm(?![A-Za-z])|±")
_DOLLARS = re.compile(r"(?<!\\)(?:\$|\\[()\[\]])")
_JOINING = re.compile(
    r"\\(?:text|textrm|mathrm|mbox|textit)\s{0,9}\{\s{0,9}(?:and|or|,)\s{0,9}\}"
    r"|(?<![A-Za-z\\])(?:and|or)(?![A-Za-z])"
)
_WORDS = re.compile(
    r"\\(?:text[a-z]{0,6}|math(?:rm|bf|it|sf)|mbox|operatorname)\s{0,9}\{([^{}]*)\}"
)
_RELATION = re.compile(r"\\(?:le|ge|ne|in|equiv|approx)(?![A-Za-z])|[=<>]")
_NAME = re.compile(
    r"\s{0,9}\([A-Za-z](?:_\w)?(?:\s{0,9},\s{0,9}[A-Za-z](?:_\w)?){1,5}\)\s{0,9}"
    r"|\s{0,9}\\?[A-Za-z]{1,8}(?:\s?_\s?(?:\{[^{}]{0,30}\}|[A-Za-z0-9]))?\s{0,9}'{0,3}"
    r"(?:\(\s{0,9}[A-Za-z](?:\s{0,9},\s{0,9}[A-Za-z]){0,5}\s{0,9}\))?\s{0,9}"
)
_FUNCTIONS = frozenset(
    [
        "sin",
        "cos",
        "tan",
        "cot",
        "sec",
        "csc",
        "arcsin",
        "arccos",
        "arctan",
        "sinh",
        "cosh",
        "tanh",
        "log",
        "ln",
        "lg",
        "exp",
        "sqrt",
        "max",
        "min",
        "gcd",
        "lcm",
        "mod",
        "det",
        "dim",
        "deg",
        "lim",
        "sup",
        "inf",
    ]
)
_WORD = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{3,}(?![A-Za-z])")
_ENVIRONMENT = re.compile(r"\\(?:begin|end)\s{0,9}\{[a-z*]{1,20}\}")
_COMMAND = re.compile(rf"{_ENVIRONMENT.pattern}|\\[A-Za-z]+")
_NEGATION = re.compile(
    r"\b(?:not|isn't|no longer|except|wrong|incorrect|neither|nor|unless)\b", re.I
)
_DIGITS_APART = re.compile(r"[0-9}]\s+\{?[0-9]|[0-9]\s{0,9}\{\s{0,9}[0-9]|\}\s{0,9}\{")
_BASE = re.compile(r"[0-9)}]\s?_")
_MEASURED = re.compile(
    r"(?P<value>.*(?:[0-9})\]]|\\pi))\s{1,9}"
    r"(?P<unit>(?:square |cubic )?[A-Za-z]{2,20}(?:\s?\^\s?\{?[23]\}?)?)",
    re.DOTALL,
)
_UNITS = re.compile(
    r"(?<=[^\s,;])\s{1,9}(?:(?:square|cubic|sq\.?|cu\.?)\s)?units?(?:\s?\^\s?\{?[23]\}?)?\Z"
)
"""Units of no name, as in "12 square units"."""
_SET_BUILDER = re.compile(
    r"\\\{\s{0,9}[A-Za-z]\s{0,9}(?:\\in\s{0,9}(?:\\mathbb\s?\{?\s?R\s?\}?|ℝ)\s{0,9})?"
    r"(?:\\(?:mid|vert|colon)(?![A-Za-z])|[|:])(.*)\\\}",
    re.DOTALL,
)
"""The numbers that satisfy a condition: `\\{x \\mid x > 3\\}`."""
_ALTERNATIVES = re.compile(
    r"\\(?:text|textrm|mathrm|mbox)\s{0,9}\{\s{0,9}or\s{0,9}\}|\\lor(?![A-Za-z])"
    r"|(?<![A-Za-z\\])or(?![A-Za-z])"
)
_INEQUALITY = re.compile(r"[<>≤≥⩽⩾]|\\(?:le|ge|lt|gt|leq|geq|leqslant|geqslant)(?![A-Za-z])")
_OPEN, _CLOSE = "([{", ")]}"


class Unreadable(ValueError):
    """The text is not an answer, because its brackets don't match."""


@dataclass(frozen=True)
class _Bracketed:
    opening: str
    items: tuple[str, ...]
    closing: str


def same(answer: str, gold: str, leaves: Leaves) -> bool:
    """Whether an answer states the same as the gold answer and nothing else."""
    try:
        if _same(normal(answer), normal(gold), leaves):
            return True
        union, wanted = _as_union(answer), _as_union(gold)
        return (union, wanted) != (answer, gold) and _same(normal(union), normal(wanted), leaves)
    except Unreadable:
        return False


def _as_union(text: str) -> str:
    """Inequalities joined by "or" as a union, which is compared as a set; another text
    unchanged."""
    parts = _ALTERNATIVES.split(text)
    joined = len(parts) > 1 and all(_INEQUALITY.search(part) for part in parts)
    return " \\cup ".join(parts) if joined else text


def normal(text: str) -> str:
    """Return the text without formatting. Raises Unreadable if brackets don't match, as in a text
    that closes the box around it."""
    _require_balance(text)
    text = _DOLLARS.sub(" ", text)
    text = _JOINING.sub(" , ", text)
    text = in_one_notation(text)
    boxed = re.fullmatch(r"\s{0,9}\\f?boxed\s{0,9}\{(.*)\}\s{0,9}", text, re.DOTALL)
    text = boxed[1] if boxed else text
    text = " ".join(text.split()).removesuffix(".").strip(" ,;")
    if not _is_text(text):
        prefix = PREFIX.match(text)
        text = _WORDS.sub(_unwrap, text[prefix.end() :] if prefix else text).strip()
        text = _UNITS.sub("", text)
    members = _SET_BUILDER.fullmatch(text)
    text = members[1] if members and _INEQUALITY.search(members[1]) else text
    while text.startswith("{") and text.endswith("}") and all(_depths(text)[1:-1]):
        text = text[1:-1].strip()
    return text


def _unwrap(match: re.Match[str]) -> str:
    if match[0].startswith("\\operatorname") and match[1].strip() in _FUNCTIONS:
        return f"\\{match[1].strip()} "
    return f" {match[1].strip()} " if match[1].strip() else " "


def _require_balance(text: str) -> None:
    depth = 0
    escaped = False
    for character in text:
        if escaped:
            escaped = False
        elif character == "\\":
            escaped = True
        elif character == "{":
            depth += 1
        elif character == "}":
            depth -= 1
            if depth < 0:
                raise Unreadable("a brace that closes nothing")
    if depth or escaped:
        raise Unreadable("a brace that is not closed")


def _same(answer: str, gold: str, leaves: Leaves) -> bool:
    if _remove_spaces(answer) == _remove_spaces(gold):
        return bool(answer)
    # "… = 385" states the result; "1, 3, …" leaves it to the reader.
    if _ELLIPSIS.search(answer.rpartition("=")[2]) or _ELLIPSIS.search(gold):
        return False
    if _is_text(answer) or _is_text(gold):
        return _as_words(answer) == _as_words(gold)
    answers, golds = list(_list_parts(answer)), list(_list_parts(gold))
    if len(answers) != 1 or len(golds) != 1:
        return _same_lists(answers, golds, leaves)
    return _same_items(answers[0], golds[0], leaves)


def _same_lists(answers: list[str], golds: list[str], leaves: Leaves) -> bool:
    """Whether both lists have the same parts, in any order."""
    answers, golds = _distinct_parts(answers), _distinct_parts(golds)
    if not answers or len(answers) != len(golds) or len(golds) > MAX_PARTS:
        return False
    remaining = list(answers)
    for gold in golds:
        match = next(
            (candidate for candidate in remaining if _same_items(candidate, gold, leaves)), None
        )
        if match is None:
            return False
        remaining.remove(match)
    return True


def _same_items(answer: str, gold: str, leaves: Leaves) -> bool:
    """Compare two answers that are not lists."""
    if _remove_spaces(answer) == _remove_spaces(gold):
        return bool(answer)
    if not answer or not gold:
        return False
    answer_sides, wanted = (list(_sides(text)) for text in (answer, gold))
    if len(answer_sides) > 1 or len(wanted) > 1:
        return _same_relations(answer, answer_sides, gold, wanted, leaves)
    answer_brackets, gold_brackets = _parse_bracketed(answer), _parse_bracketed(gold)
    if answer_brackets is not None and gold_brackets is not None:
        return (
            (answer_brackets.opening, answer_brackets.closing)
            == (gold_brackets.opening, gold_brackets.closing)
            and len(answer_brackets.items) == len(gold_brackets.items) <= MAX_PARTS
            and all(
                map(
                    lambda a, b: _same_items(a, b, leaves),
                    answer_brackets.items,
                    gold_brackets.items,
                )
            )
        )
    if answer_brackets is not None or gold_brackets is not None:
        return False
    return _same_leaves(answer, gold, leaves)


def _same_relations(
    answer: str, answer_sides: list[str], gold: str, wanted: list[str], leaves: Leaves
) -> bool:
    """Compare two answers of which at least one is a relation."""
    named, also_named = _is_name_of(answer_sides), _is_name_of(wanted)
    if named and also_named:
        same_name = _remove_spaces(answer_sides[0]) == _remove_spaces(wanted[0])
        if same_name or len(answer_sides) > 3 or len(wanted) > 3:
            return _same(answer_sides[-1], wanted[-1], leaves) and _is_consistent_chain(
                answer_sides, leaves
            )
        return not _both_assign(answer_sides, wanted) and _same_algebra(answer, gold, leaves)
    if named and len(wanted) == 1:
        return _same(answer_sides[-1], gold, leaves) and _is_consistent_chain(answer_sides, leaves)
    if also_named and len(answer_sides) == 1:
        return _same(answer, wanted[-1], leaves)
    if len(wanted) == 1 and _parse_bracketed(gold) is None and "\\cup" not in gold:
        # "3 + 4 = 7" works out the result.
        return (
            set(answer_sides[1::2]) == {"="}
            and _same(answer_sides[-1], gold, leaves)
            and _is_consistent_chain(answer_sides, leaves)
        )
    if len(answer_sides) == 1 and _parse_bracketed(answer) is None and "\\cup" not in answer:
        return False
    return _same_algebra(answer, gold, leaves)


def _both_assign(answer_sides: list[str], wanted: list[str]) -> bool:
    """Whether both assign numbers to variables: `a = 7` is not `b = 7`."""
    return written_number(answer_sides[-1]) is not None and written_number(wanted[-1]) is not None


def _is_consistent_chain(sides: list[str], leaves: Leaves) -> bool:
    """Whether all numbers in a chain equal the last one: `n = 7 = 315` is two answers."""
    return all(
        written_number(side) is None or written_numbers_agree(side, sides[-1])
        for side in sides[:-1:2]
    )


def _is_name_of(sides: list[str]) -> bool:
    """Whether the last side is given a name: `x = 5`, `f(x) = 2x`, `x \\in (0, 1)`."""
    return len(sides) >= 3 and set(sides[1::2]) <= {"=", "\\in"} and bool(_NAME.fullmatch(sides[0]))


def _same_leaves(answer: str, gold: str, leaves: Leaves) -> bool:
    same_quantity = quantities_agree(answer, gold)
    if same_quantity is not None:
        return same_quantity
    if written_number(gold) is not None:
        return written_numbers_agree(answer, gold)
    measured, also_measured = _measured(answer), _measured(gold)
    if measured is not None or also_measured is not None:
        units = [parts[1] for parts in (measured, also_measured) if parts is not None]
        if len(units) == 2 and unit_of(units[0]) != unit_of(units[1]):
            return False
        answer, gold = (measured or (answer, ""))[0], (also_measured or (gold, ""))[0]
        return _same_items(answer, gold, leaves)
    if _NEGATION.search(answer) or any(map(_has_words, (answer, gold))):
        return False
    if _is_ambiguous(answer):
        return False
    return _same_algebra(answer, gold, leaves)


def _same_algebra(answer: str, gold: str, leaves: Leaves) -> bool:
    # The parser drops the mark of a derivative.
    return answer.count("'") == gold.count("'") and leaves.same(answer, gold)


def _measured(text: str) -> tuple[str, str] | None:
    """An expression and the listed unit after it, such as inches; None without a listed unit."""
    match = _MEASURED.fullmatch(text)
    if match is None or unit_of(match["unit"]) is None:
        return None
    return match["value"].strip(), match["unit"]


def _is_ambiguous(answer: str) -> bool:
    """Whether the answer contains notation that a LaTeX parser misreads as a product or ignores:
    adjacent numbers, or a base."""
    return bool(_DIGITS_APART.search(_without_arguments(answer)) or _BASE.search(answer))


def _without_arguments(text: str) -> str:
    """Replace fractions, whose two pairs of braces belong together, and other commands by `x`."""
    text = _ENVIRONMENT.sub(" x ", text)
    for _ in range(6):
        shorter = re.sub(
            r"\\(?:frac|binom|sqrt|log)\s?(?:_\s?)?(?:\[[^\[\]]*\]\s?)?(?:\{[^{}]*\}\s?){1,2}",
            "x",
            text,
        )
        if shorter == text:
            break
        text = re.sub(r"\^\s?\{[^{}]*\}", "^x", shorter)
    return text


def _list_parts(text: str) -> Iterator[str]:
    """The parts of a list or a set, which has no order; a plus-minus sign yields two parts."""
    sides = list(_sides(text))
    named = len(sides) == 3 and _is_name_of(sides)
    inner, members = text, sides[-1] if named else text
    if members.startswith("\\{") and members.endswith("\\}") and _is_one_set(members):
        inner = members[2:-2]
    parts = _split(inner, ",;")
    if len(parts) > 1 and written_number(inner) is not None:
        parts = [inner]
    for part in parts:
        stripped = part.strip()
        if not stripped:
            continue
        signs = _PLUS_MINUS.findall(stripped)
        if len(signs) == 1:
            for sign in ("+", "-"):
                yield _PLUS_MINUS.sub(sign, stripped).strip().removeprefix("+").strip()
        else:
            yield stripped


def _distinct_parts(parts: list[str]) -> list[str]:
    return list({_remove_spaces(part): part for part in parts}.values())


def _sides(text: str) -> Iterator[str]:
    """The sides of a relation and the signs between them, alternating."""
    begin = 0
    depths = _depths(text)
    for match in _RELATION.finditer(text):
        if depths[match.start()] == 0:
            yield text[begin : match.start()].strip()
            yield match[0]
            begin = match.end()
    yield text[begin:].strip()


def _parse_bracketed(text: str) -> _Bracketed | None:
    """A tuple, a point or an interval: at least two parts in brackets, which may be half-open."""
    if len(text) < 2 or text[0] not in "([" or text[-1] not in ")]":
        return None
    depths = _depths(text)
    if any(depth == 0 for depth in depths[1:-1]):
        return None
    items = tuple(part.strip() for part in _split(text[1:-1], ",;"))
    return _Bracketed(text[0], items, text[-1]) if len(items) > 1 else None


def _is_one_set(text: str) -> bool:
    """Whether a text in `\\{` and `\\}` lists the members of one set."""
    return all(depth > 0 for depth in _depths(text)[2:-2]) and not re.search(r"[|:]|\\mid", text)


def _split(text: str, separators: str) -> list[str]:
    """Split at separators outside of brackets, but not at the comma of `1,000` in a number."""
    parts: list[str] = []
    begin = 0
    depths = _depths(text)
    for at, character in enumerate(text):
        if character in separators and depths[at] == 0 and text[at - 1 : at] != "\\":
            parts.append(text[begin:at])
            begin = at + 1
    return [*parts, text[begin:]]


def _depths(text: str) -> list[int]:
    """Depth of each character in brackets. All kinds of brackets match each other, because an
    interval may be half-open. An opening bracket is outside, a closing one inside. Raises
    Unreadable if brackets don't match."""
    depths: list[int] = []
    depth = 0
    for character in text:
        if character in _CLOSE:
            depth -= 1
            if depth < 0:
                raise Unreadable("a bracket that closes nothing")
            depths.append(depth + 1)
            continue
        depths.append(depth)
        if character in _OPEN:
            depth += 1
    if depth:
        raise Unreadable("a bracket that is not closed")
    return depths


def _is_text(text: str) -> bool:
    """Whether the text consists of words, or the letter of a choice, and is not a formula."""
    bare = _WORDS.sub(r" \1 ", text)
    if "\\" in bare or any(character.isdigit() for character in bare):
        return False
    if re.fullmatch(r"\s{0,9}\(?\s?[A-Z]\s?[).]?\s{0,9}", bare):
        return True
    return _has_words(bare) and not re.search(r"[=<>+*/^]", bare)


def _has_words(text: str) -> bool:
    bare = _COMMAND.sub(" ", _WORDS.sub(r" \1 ", text))
    return any(word.lower() not in _FUNCTIONS for word in _WORD.findall(bare))


def _as_words(text: str) -> str:
    bare = _WORDS.sub(r" \1 ", text)
    return " ".join(re.findall(r"[^\W_]+", bare)).casefold()


def _remove_spaces(text: str) -> str:
    r"""The text without spaces, except between two numbers, and without braces around single
    characters: `x^{2}` is `x^2`, but `\frac{1}{12}` is not `\frac{11}{2}`."""
    text = re.sub(r"(?<=[0-9])\s(?=[0-9]{3}(?![0-9]))", "", text)
    text = re.sub(r"(?<![0-9])\s+|\s+(?![0-9])", "", text)
    return re.sub(r"(?<!\\)\{([0-9A-Za-z])\}", r"\1", text)
