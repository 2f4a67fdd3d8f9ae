"""Whether an agent could have read a test where it reads its problem: then the test is copied and
not thought of, and a program that repeats it has solved nothing.

Some data sets list their examples (`CodeQuestion.examples`); APPS only has them in its statements:

    Input        Input: nums = [2, 7], target = 9        >>> f([2, 7], 9)        "ab" --> true
    3            Output: [0, 1]                          [0, 1]
    Output
    6
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import lru_cache

from agents.environments.code.problem import CallTest, CodeTest, ProgramTest

_BETWEEN = 120
"""Characters between the input of an example and its output: a heading, mostly."""
_ANSWER = re.compile(r"output")
_TIGHT = re.compile(r"\s*([,:=()\[\]{}])\s*")
_QUOTES = str.maketrans("", "", "'\"`")


def tells(statement: str, test: CodeTest) -> bool:
    """Whether the statement says what belongs to the test's input: in the forms above, whatever the
    space between. Assertions are the data set's own code, and are not looked for."""
    if isinstance(test, ProgramTest):
        return _tells_program(statement, test)
    # A statement says the plain value where a data set holds it in a list of one.
    return isinstance(test, CallTest) and any(
        _tells_call(statement, test, right) for right in (test.expected, *test.also_right)
    )


def _tells_program(statement: str, test: ProgramTest) -> bool:
    if len(test.stdin) > len(statement):
        # Most hidden tests, of which there may be millions.
        return False
    text, given, wanted = (_words(each) for each in (statement, test.stdin, test.stdout))
    at = text.find(given) if given.strip() and wanted.strip() else -1
    while at >= 0:
        # The space at the end of the one may be that at the beginning of the other.
        end = at + len(given) - 1
        found = text.find(wanted, end, end + _BETWEEN + len(wanted))
        if found >= 0 and _ANSWER.search(text[end:found].lower()):
            return True
        at = text.find(given, at + 1)
    return False


def _tells_call(statement: str, test: CallTest, right: object) -> bool:
    text = _tight(statement)
    given = [_value(each) for each in test.arguments]
    if sum(map(len, given)) > len(text):
        return False
    wanted, all_given = _whole(_value(right)), _whole(",".join(given))
    # A call, of whatever name, with its value soon after it, or an arrow from one to the other.
    called = rf"\w\({re.escape(','.join(given))}\)\W{{0,8}}(?:returns?)?"
    if re.search(rf"(?:{called}|{all_given}\W{{0,3}}[-=]+>)\W{{0,8}}{wanted}", text):
        return True
    answers = re.finditer(rf"output\W{{0,4}}{wanted}", text)
    return bool(given) and any(_in_order(given, text[: each.start()]) for each in answers)


def _in_order(values: Sequence[str], before: str) -> bool:
    """Whether a text ends with these values, one behind the other, with little between them."""
    end = len(before)
    for value in reversed(values):
        at = before.rfind(value, 0, end)
        if at < 0 or end - at - len(value) > _BETWEEN // 2:
            return False
        end = at
    return True


def _whole(value: str) -> str:
    """A pattern of the value that is no part of a longer word or number."""
    before = r"(?<![\w.])" if value[:1].isalnum() else ""
    behind = r"(?![\w.]*\w)" if value[-1:].isalnum() else ""
    return before + re.escape(value) + behind


@lru_cache(maxsize=8)
def _words(text: str) -> str:
    """Each with a space on either side."""
    return f" {' '.join(text.split())} "


@lru_cache(maxsize=8)
def _tight(text: str) -> str:
    """Without what is written in one way or another: case, quotes, space beside punctuation."""
    return " ".join(_TIGHT.sub(r"\1", text).translate(_QUOTES).lower().split())


def _value(value: object) -> str:
    return _tight(json.dumps(value, ensure_ascii=False))
