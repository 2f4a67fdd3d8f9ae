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
            evades = request["strict"] and _evades(gold, said, unworked)
            verdict = not evades and verify(gold, said, timeout_seconds=ALARM_SECONDS)
        except (Exception, RecursionError, MemoryError):  # noqa: BLE001 - a verdict for any text
            verdict = False
        print("true" if verdict else "false", flush=True)


def _unworked(text: str) -> set[str]:
    """Commands in a text, or behind its last equals sign, that leave the work to its reader and
    that SymPy does as it reads them, so that nothing of them is seen in what it made."""
    return set(_COMMANDS.findall(text.rpartition("=")[2]))


def _evades(gold: list[Any], said: list[Any], unworked: set[str]) -> bool:
    """Whether the gold answer is a number and the other only says how it is worked out (a sum, a
    limit, a remainder, ...), or is a zero that is near to it. Math-Verify takes both: it works them
    out itself, and rounds to six decimals."""
    from sympy import Basic, Derivative, Integral, Limit, Product, Sum

    to_do = (Sum, Product, Integral, Limit, Derivative)
    golds = [_value(each) for each in gold if isinstance(each, Basic)]
    if not golds or not all(each.is_number and not each.has(*to_do) for each in golds):
        return False
    if unworked:
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
