"""Decides whether an agent could have read a test in its problem: then the test is copied, not
invented, and a program that repeats it has solved nothing.

Some data sets list their examples (`CodeQuestion.examples`); APPS has them only in its statements:

    Input        Input: nums = [2, 7], target = 9        >>> f([2, 7], 9)        "ab" --> true
    3            Output: [0, 1]                          [0, 1]
    Output
    6

In a model's test, numbers are equal regardless of spelling (`03` for 3, or 3.0000000001), an input
with further text is still the example's, and any of an example's many cases counts as shown. A data
set's own tests are compared as written.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import pairwise

from loopline.agents.environments.code.comparison import TOLERANCE, outputs_agree
from loopline.agents.environments.code.problem import CallTest, CodeTest, ProgramTest

_BETWEEN = 120
"""Maximum number of characters between an example's input and output: usually a heading."""
_ANSWER = re.compile(r"output")
_MARKS = "-:*#`"
_LABELS = frozenset({"sample", "example", "expected"})
"""Words that may precede "output" and are not part of an input."""
_SPELLED = re.compile(
    r"(?<![\w.])-?\d++(?:\.\d++)?+(?:e[+-]?\d++)?+(?!\w|\.\d)|(?<!\w)(?:true|false)(?!\w)"
)
# A run of spaces is tried only at its start.
_TIGHT = re.compile(r"(?:(?<!\s)\s++)?([,:=()\[\]{}])\s*")
_TRUTHS = {"true": "1", "false": "0"}
_QUOTES = str.maketrans("", "", "'\"`")


def leaks_test(statement: str, test: CodeTest) -> bool:
    """Whether the statement shows the output for the test's input, in the forms above and with any
    whitespace. Assertions are the data set's own code, and are not searched."""
    if isinstance(test, ProgramTest):
        # Most hidden tests are longer than the statement, and there may be millions of them.
        return len(test.stdin) <= len(statement) and _leaks_program_test(
            *(_space_words(text) for text in (statement, test.stdin, test.stdout))
        )
    # A statement shows the bare value if a data set has it in a list of one.
    return isinstance(test, CallTest) and any(
        _leaks_call_test(_remove_spaces(statement), _values(test.arguments), _value(right))
        for right in (test.expected, *test.also_right)
    )


def leaks_generated_test(statement: str, test: ProgramTest | CallTest) -> bool:
    """Whether the statement shows a model's test, perhaps in another spelling or with further
    text."""
    if leaks_test(statement, test):
        return True
    if isinstance(test, ProgramTest):
        words = map(_normalize_words, (statement, test.stdin, test.stdout))
        return (
            _leaks_program_test(*words)
            or _extends_example(statement, test)
            or any(
                consists_of_example_cases(*example, test) for example in _listed_examples(statement)
            )
        )
    arguments = list(map(_normalize_tight, _values(test.arguments)))
    return _leaks_call_test(
        _normalize_tight(_remove_spaces(statement)),
        arguments,
        _normalize_tight(_value(test.expected)),
    )


def consists_of_example_cases(stdin: str, stdout: str, test: ProgramTest) -> bool:
    """Whether a test consists of cases of an example whose first line states their number: `1 / 3
    4` of `2 / 3 4 / 5 6`, or `3 / 3 4 / 3 4 / 3 4` of `1 / 3 4`. The example then shows their
    outputs, too."""
    (example_lines, outputs), (test_lines, wanted) = (
        (_normalize_lines(input_text), _normalize_lines(output_text))
        for input_text, output_text in ((stdin, stdout), (test.stdin, test.stdout))
    )
    cases, all_cases = (
        _case_count(lines[0]) if len(lines) > 1 else 0 for lines in (test_lines, example_lines)
    )
    if not cases or not 1 <= all_cases <= len(outputs) or not set(wanted) <= set(outputs):
        return False
    size, odd = divmod(len(example_lines) - 1, all_cases)
    if all_cases == 1 and len(test_lines) - 1 != cases * size:
        # The example's 1 need not be a number of cases. It is one if the test has the number of
        # cases that its own first line states.
        return False
    # Most programs don't read beyond the last case; its end is known if all cases have the same
    # number of lines.
    end = None if odd else 1 + cases * size
    return set(test_lines[1:]) <= set(example_lines[1:]) or (
        end is not None
        and len(test_lines) > end
        and set(test_lines[1:end]) <= set(example_lines[1:])
    )


def _case_count(line: str) -> int:
    """Return the number of cases that follow; 0 for a line that states none."""
    return int(line) if line.isdecimal() and len(line) < 10 else 0


def _listed_examples(statement: str) -> Iterator[tuple[str, str]]:
    """Yield input and output of each example in a statement; the output includes the text after
    it."""
    parts: list[tuple[str, list[str]]] = []
    for line in statement.splitlines():
        words = [word.strip(_MARKS).lower() for word in line.split()]
        named = [word for word in words if word not in _LABELS and not word.isdecimal()]
        if named in (["input"], ["output"]):
            parts.append((named[0], []))
        elif parts:
            parts[-1][1].append(line)
    for (first, input_lines), (second, wanted) in pairwise(parts):
        if (first, second) == ("input", "output"):
            yield "\n".join(input_lines), "\n".join(wanted)


def _extends_example(statement: str, test: ProgramTest) -> bool:
    """Whether the test's input is an example's in the statement, or continues it with text that
    most programs don't read, and a program that writes the example's output passes the test."""
    statement_words, test_words = (
        _normalize_words(text).split() for text in (statement, test.stdin)
    )
    wanted = test.stdout.split()
    return any(
        test_words[: len(example_words)] == example_words
        and outputs_agree(" ".join(statement_words[at : at + len(wanted)]), " ".join(wanted))
        for example_words, at in _examples(statement_words)
    )


def _examples(words: Sequence[str]) -> Iterator[tuple[Sequence[str], int]]:
    """Yield the input of each example in a statement's words, and the index where its output
    starts."""
    begun: int | None = None
    for at, word in enumerate(words):
        heading = word.strip(_MARKS).lower()
        if heading == "input":
            begun = at + 1
        elif heading == "output" and begun is not None:
            end, output = at, at + 1
            while end > begun and words[end - 1].strip(_MARKS).lower() in _LABELS:
                end -= 1
            if end > begun:
                yield words[begun:end], output
            # "Sample Input 1 … Sample Output 1"
            if end > begun + 1 and words[begun : begun + 1] == words[output : output + 1]:
                yield words[begun + 1 : end], output + 1
            begun = None


def _leaks_program_test(text: str, stdin: str, wanted: str) -> bool:
    at = text.find(stdin) if stdin.strip() and wanted.strip() else -1
    while at >= 0:
        # One space may end the input and start the output.
        end = at + len(stdin) - 1
        position = text.find(wanted, end, end + _BETWEEN + len(wanted))
        if position >= 0 and _ANSWER.search(text[end:position].lower()):
            return True
        at = text.find(stdin, at + 1)
    return False


def _leaks_call_test(text: str, arguments: Sequence[str], right: str) -> bool:
    if sum(map(len, arguments)) > len(text):
        return False
    wanted, all_given = _whole_word_pattern(right), _whole_word_pattern(",".join(arguments))
    # A call of any name with its value shortly after it, or an arrow from the arguments to the
    # value.
    called = rf"\w\({re.escape(','.join(arguments))}\)\W{{0,8}}(?:returns?)?"
    if re.search(rf"(?:{called}|{all_given}\W{{0,3}}[-=]+>)\W{{0,8}}{wanted}", text):
        return True
    answers = re.finditer(rf"output\W{{0,4}}{wanted}", text)
    return bool(arguments) and any(
        _ends_with_values(arguments, text[: match.start()]) for match in answers
    )


def _ends_with_values(values: Sequence[str], before: str) -> bool:
    """Whether a text ends with these values in order, with little text between them."""
    end = len(before)
    for value in reversed(values):
        at = before.rfind(value, 0, end)
        if at < 0 or end - at - len(value) > _BETWEEN // 2:
            return False
        end = at
    return True


def _whole_word_pattern(value: str) -> str:
    """Return a pattern of the value, not as part of a longer word or number."""
    before = r"(?<![\w.])" if value[:1].isalnum() else ""
    behind = r"(?![\w.]*\w)" if value[-1:].isalnum() else ""
    return before + re.escape(value) + behind


def normalize_number(word: str) -> str:
    """Return a number as programs read it: `3` for `03`, `+3`, `0_3`, `3.0`; fractions are rounded
    to the precision of output comparison. Other words are unchanged."""
    for read in (int, float):
        with suppress(ValueError, OverflowError):
            number = round_to_whole(read(word))
            return str(number) if isinstance(number, int) else f"{number:.6g}"
    return word


def round_to_whole(number: float) -> float:
    """Return the nearest whole number if the number equals it within the tolerance of output
    comparison, else the number. Raises ValueError and OverflowError for anything that is not a real
    number."""
    whole = round(number)
    if number == whole or math.isclose(number, whole, rel_tol=TOLERANCE, abs_tol=TOLERANCE):
        return whole
    return number


def _normalize_lines(text: str) -> list[str]:
    return [
        " ".join(map(normalize_number, line.split())) for line in text.splitlines() if line.strip()
    ]


@lru_cache(maxsize=8)
def _space_words(text: str) -> str:
    """Return the words with a single space on either side of each."""
    return f" {' '.join(text.split())} "


@lru_cache(maxsize=8)
def _normalize_words(text: str) -> str:
    return f" {' '.join(map(normalize_number, text.split()))} "


@lru_cache(maxsize=8)
def _remove_spaces(text: str) -> str:
    """Return the text without variations in case, quotes, and space next to punctuation."""
    return " ".join(_TIGHT.sub(r"\1", text).translate(_QUOTES).lower().split())


def _normalize_tight(tight: str) -> str:
    # `True` equals 1, so one may replace the other.
    return _SPELLED.sub(lambda match: _TRUTHS.get(match[0]) or normalize_number(match[0]), tight)


def _values(values: Sequence[object]) -> list[str]:
    return [_value(value) for value in values]


def _value(value: object) -> str:
    return _remove_spaces(json.dumps(value, ensure_ascii=False))
