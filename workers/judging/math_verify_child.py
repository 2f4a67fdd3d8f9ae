"""The child of `workers.judging.math_verify`: one JSON request a line in, true or false out."""

from __future__ import annotations

import json
import logging
import re
import resource
import sys
from typing import Any

from workers.judging.math_verify import ALARM_SECONDS, MEMORY_BYTES

CPU_SECONDS = 60
"""Of one request: more than the alarms leave it. A parent that was killed can't kill this process,
and in C code it hears no alarm and sees no end of its input; then the kernel ends it."""
_COMMANDS = re.compile(
    r"\\(?:[bp]?mod|gcd|lcm|lfloor|lceil|floor|ceil|det|max|min)(?![A-Za-z])|\\[dt]?frac\s*\{\s*d\s*\}"
)
_WORDS = re.compile(r"\\(?:text|textbf|textrm|mathrm|mathbf|mbox|operatorname)\s*\{[^{}]*\}")
_DEGREES = r"\^\s*(?:\\circ(?![A-Za-z])|\{\s*\\circ\s*\})"
_LAYOUT = re.compile(rf"\\(?:left|right|displaystyle)(?![A-Za-z])|{_DEGREES}")
_SPACE = re.compile(r"\\[,;:! ]|\\q?quad(?![A-Za-z])|[~$]")
_WORK = re.compile(
    # A sign between two numbers; that of 1.5 · 10^8 only writes one.
    r"(?<=[0-9)}\]!%])\s?(?:[+*·×−-]|\\(?:times|cdot|div)(?![A-Za-z]))(?!\s?10\s?(?:\^|\*\*))"
    r"\s?[-+−]?\s?(?=\.?[0-9]|[({\\])"
    r"|[0-9)]\((?=\s?[-+−]?\s?[0-9.(\\])"
    # One that begins a formula: behind a word the mark may end a sentence.
    r"|(?:^|[{(])\s?[0-9]++[\s)}]*+!"
    r"|\\[dt]?binom|\\choose(?![A-Za-z])"
)


def main() -> None:
    """Answer requests until the input ends."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    from math_verify import parse, verify

    logging.disable(logging.CRITICAL)
    # The grammar is built at the first use; no prediction should pay for that with its time.
    verify(parse("$\\frac{1}{2}$"), parse("\\boxed{0.5}"))
    print("ready", flush=True)
    for line in sys.stdin:
        _end_by(CPU_SECONDS)
        request = json.loads(line)
        try:
            # The order of arguments matters: verify(gold, target) is not symmetric.
            gold = parse(request["gold"], parsing_timeout=ALARM_SECONDS)
            said = parse(request["prediction"], parsing_timeout=ALARM_SECONDS)
            unworked = _unworked(request["prediction"]) - _unworked(request["gold"])
            to_do = calculates(request["prediction"]) and not _is_form(request["gold"])
            evades = request["strict"] and _evades(gold, said, unworked, calculated=to_do)
            verdict = not evades and verify(gold, said, timeout_seconds=ALARM_SECONDS)
        except (Exception, RecursionError, MemoryError):  # noqa: BLE001 - a verdict for any text
            verdict = False
        print("true" if verdict else "false", flush=True)


def _unworked(text: str) -> set[str]:
    """Commands in a text, or behind its last equals sign, that leave the work to its reader and
    that SymPy does as it reads them, so that nothing of them is seen in what it made."""
    return set(_COMMANDS.findall(text.rpartition("=")[2]))


def calculates(text: str) -> bool:
    r"""Whether a text, or what stands behind its last equals sign, calculates with plain numbers,
    as `(16 - 7) \times 2` and `10!` do. A fraction, a mixed number, a power, a negative number and
    a list of numbers are numbers as they are written."""
    return _WORK.search(_bare(text).rpartition("=")[2]) is not None


def _is_form(gold: str) -> bool:
    """Whether a gold answer is itself more than a number (`2^{100} - 1`): the same in another form
    is an answer then."""
    return calculates(gold) or any(sign in _bare(gold) for sign in "^!")


def _bare(text: str) -> str:
    r"""Without what only formats. Words stay one, so that no sign behind them comes to stand
    between numbers, as in `2 \text{ or } -2`."""
    return " ".join(_SPACE.sub(" ", _LAYOUT.sub("", _WORDS.sub(" x ", text))).split())


def _evades(gold: list[Any], said: list[Any], unworked: set[str], *, calculated: bool) -> bool:
    """Whether the gold answer is a number and the other only says how it is worked out (a sum, a
    limit, a remainder, a calculation of rational numbers, ...), or is a zero that is near to it.
    Math-Verify takes both: it works them out itself, and rounds to six decimals."""
    from sympy import Basic, Derivative, Integral, Limit, Product, Sum

    to_do = (Sum, Product, Integral, Limit, Derivative)
    golds = [_value(each) for each in gold if isinstance(each, Basic)]
    if not golds or not all(each.is_number and not each.has(*to_do) for each in golds):
        return False
    if unworked or (calculated and all(each.is_rational or each.is_Float for each in golds)):
        return True
    some = all(each.evalf().is_zero is False for each in golds)
    answers = [_value(each) for each in said if isinstance(each, Basic)]
    return any(each.has(*to_do) or (some and each.is_Number and each.is_zero) for each in answers)


def _value(expression: Any) -> Any:
    """What `x = 5` says of x."""
    from sympy import Eq

    return expression.rhs if isinstance(expression, Eq) else expression


def _end_by(seconds: int) -> None:
    used = resource.getrusage(resource.RUSAGE_SELF)
    limit = seconds + round(used.ru_utime + used.ru_stime)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    if hard == resource.RLIM_INFINITY or limit < hard:
        resource.setrlimit(resource.RLIMIT_CPU, (limit, hard))


if __name__ == "__main__":
    main()
