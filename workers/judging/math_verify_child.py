"""The child of `loopline.workers.judging.math_verify`: reads one JSON request per line and writes
true or false.

`{"prediction": …, "gold": …}`: whether Math-Verify's own rules find the gold answer in the
prediction. `{"answer": …, "gold": …}`: two expressions, relations or intervals, each parsed as a
whole (`loopline.workers.judging.relations`).
"""

from __future__ import annotations

import json
import logging
import re
import resource
import sys
from typing import Any

from loopline.workers.judging.math_verify import ALARM_SECONDS, MEMORY_BYTES

CPU_SECONDS = 60
"""CPU time of one request, more than the alarms allow. If the parent was killed, it can't kill this
process, and C code sees neither an alarm nor the end of its input. Then the kernel ends it."""
_COMMANDS = re.compile(
    r"\\(?:[bp]?mod|gcd|lcm|lfloor|lceil|floor|ceil|det|max|min|Gamma)(?![A-Za-z])"
    r"|\\[dt]?frac\s*\{\s*d\s*\}|\\begin\s*\{\s*[vV]matrix"
    r"|\\operatorname\*?\s*\{\s*(?:gcd|lcm|floor|ceil|mod|max|min|det|tr|trace|rank|norm)[a-z]*\s*\}"
)
_WORDS = re.compile(
    r"\\(?:text[a-z]*|math(?:rm|bf|it|sf|tt)|mbox|hbox|[hv]?phantom|operatorname)\s*\{[^{}]*\}"
)
_DEGREES = r"\^\s*(?:\\circ(?![A-Za-z])|\{\s*\\circ\s*\})"
_LAYOUT = re.compile(rf"\\(?:left|right|displaystyle)(?![A-Za-z])|{_DEGREES}")
_SPACE = re.compile(r"\\[,;:! ]|\\q?quad(?![A-Za-z])|[~$]")
_WORK = re.compile(
    # A sign between two numbers, but not the sign in 1.5 · 10^8, which is only notation.
    r"(?<=[0-9)}\]!%|])\s?(?:[+*·×−-]|\\(?:times|cdot|div)(?![A-Za-z]))(?!\s?10\s?(?:\^|\*\*))"
    r"\s?[-+−]?\s?(?=\.?[0-9]|[({\\|])"
    r"|[0-9)]\s?\((?=\s?[-+−]?\s?[0-9.(\\])"
    # A factorial at the start of a formula: after a word, the mark may end a sentence.
    r"|(?:^|[{(])\s?[0-9]++[\s)}]*+!"
    r"|\\[dt]?binom|\\choose(?![A-Za-z])"
)


_SMALL = 1e-6
"""The last decimal place that Math-Verify compares."""


def main() -> None:
    """Answer requests until the input ends."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    from math_verify import parse, verify

    logging.disable(logging.CRITICAL)
    _disable_evaluation()
    # The grammar is built on first use; no prediction should spend its time limit on that.
    verify(parse("$\\frac{1}{2}$"), parse("\\boxed{0.5}"))
    print("ready", flush=True)
    for line in sys.stdin:
        _exit_after(CPU_SECONDS)
        request = json.loads(line)
        if "answer" in request:
            print("true" if _same(request["answer"], request["gold"]) else "false", flush=True)
            continue
        try:
            # The order of arguments matters: verify(gold, target) is not symmetric.
            gold = parse(request["gold"], parsing_timeout=ALARM_SECONDS)
            prediction = parse(request["prediction"], parsing_timeout=ALARM_SECONDS)
            verdict = verify(gold, prediction, timeout_seconds=ALARM_SECONDS)
        except (Exception, RecursionError, MemoryError):  # noqa: BLE001 - a verdict for any text
            verdict = False
        print("true" if verdict else "false", flush=True)


def _same(answer: str, gold: str) -> bool:
    from math_verify.utils import timeout

    from loopline.workers.judging.relations import compare_relations, is_relation, read

    def compare() -> bool:
        parsed_answer, wanted = read(answer), read(gold)
        if is_relation(wanted):
            return compare_relations(parsed_answer, wanted)
        unworked = _unevaluated_commands(answer) - _unevaluated_commands(gold)
        if _is_unevaluated_answer([wanted], [parsed_answer], unworked):
            return False
        if not _is_form(gold) and _is_unworked_calculation([wanted], [parsed_answer], answer):
            return False
        return compare_relations(parsed_answer, wanted)

    try:
        return bool(timeout(ALARM_SECONDS)(compare)())
    except (Exception, RecursionError, MemoryError):  # noqa: BLE001 - a verdict for any text
        return False


def _disable_evaluation() -> None:
    r"""Keep two kinds of values as sums, which are not written numbers, although Math-Verify
    evaluates them during parsing. It reads an integer before another number as a mixed number,
    however large the latter is (`21 49` as 70), and substitutes numbers into a formula
    (`(x^3+x)|_{x=4}`)."""
    from latex2sympy2_extended import latex2sympy2
    from sympy import Add, Rational

    reader: Any = vars(latex2sympy2)["_Latex2Sympy"]
    product_of, activate = reader.convert_postfix_list, reader.do_subs

    def convert_postfix_list(self: Any, factors: Any, first: int = 0) -> Any:
        read = product_of(self, factors, first)
        if first > 0:
            # The parser calls itself for everything after the first factor.
            self.behind = read
        elif len(factors) > 1 and isinstance(read, Rational):
            behind = self.behind
            if isinstance(behind, Rational) and behind >= 1:
                return Add(read - behind, behind, evaluate=False)
        return read

    def do_subs(self: Any, formula: Any, at: Any) -> Any:
        return Add(activate(self, formula, at), 0, evaluate=False)

    reader.convert_postfix_list, reader.do_subs = convert_postfix_list, do_subs


def _unevaluated_commands(text: str) -> set[str]:
    """Commands in a text, or after its last equals sign, that leave the work to the reader. SymPy
    evaluates them during parsing, so that the result shows no trace of them."""
    plain = _WORDS.sub(lambda words: words.group().replace("=", " "), text)
    return set(_COMMANDS.findall(plain.rpartition("=")[2]))


def contains_calculation(text: str) -> bool:
    r"""Whether a text, or the part after its last equals sign, calculates with plain numbers, as
    `(16 - 7) \times 2` and `10!` do. A fraction, a mixed number, a power, a negative number and a
    list of numbers are written numbers, not calculations."""
    return _WORK.search(_strip_formatting(text).rpartition("=")[2]) is not None


def _is_form(gold: str) -> bool:
    """Whether a gold answer is itself more than a number (`2^{100} - 1`): then an answer may be the
    same value in another form."""
    return contains_calculation(gold) or any(sign in _strip_formatting(gold) for sign in "^!")


def _strip_formatting(text: str) -> str:
    r"""Return the text without formatting. Words stay one token, so that no sign after them ends up
    between numbers, as in `2 \text{ or } -2`."""
    return " ".join(_SPACE.sub(" ", _LAYOUT.sub("", _WORDS.sub(" x ", text))).split())


def _is_unevaluated_answer(gold: list[Any], answer_forms: list[Any], unworked: set[str]) -> bool:
    """Whether the gold answer is a number and the answer is either an expression that leaves it to
    be worked out (a sum, a limit, a remainder, ...) or a different number that is almost zero.
    Math-Verify accepts both, because it evaluates expressions and rounds to six decimals."""
    from sympy import Derivative, Integral, Limit, Product, Sum

    to_do = (Sum, Product, Integral, Limit, Derivative)
    golds, answers = _values(gold), _values(answer_forms)
    if not golds or not all(value.is_number and not value.has(*to_do) for value in golds):
        return False
    return bool(unworked) or any(
        value.has(*to_do) or _is_only_approximate(value, golds) for value in answers
    )


def _is_only_approximate(answer: Any, golds: list[Any]) -> bool:
    """Whether an answer near zero differs from the gold values, though equal to six decimals."""
    if not answer.is_number or not answer.is_real:
        return False
    approximation = answer.evalf()
    return bool(abs(approximation) < _SMALL) and all(
        gold_value.evalf().is_zero is False
        and abs(approximation - gold_value.evalf()) > _SMALL * abs(gold_value.evalf())
        for gold_value in golds
    )


def _is_unworked_calculation(gold: list[Any], answer_forms: list[Any], prediction: str) -> bool:
    """Whether the gold answer is a rational number and the answer is not a written number, but an
    expression that SymPy would evaluate."""
    golds = _values(gold)
    if not golds or not all(
        value.is_number and (value.is_rational or value.is_Float) for value in golds
    ):
        return False
    return contains_calculation(prediction) or not all(
        map(_is_written_number, _values(answer_forms))
    )


def _is_written_number(expression: Any) -> bool:
    """Whether the expression is a number in usual notation: with a sign, as a fraction, as a power,
    times a power of ten, in percent; or a list of such numbers."""
    from sympy import FiniteSet, Integer, Mul, Number, Pow, Rational, Tuple, UnevaluatedExpr

    if isinstance(expression, Number):
        return True
    if isinstance(expression, UnevaluatedExpr):
        return expression.args[0] == Rational(1, 100)
    if isinstance(expression, Pow):
        return _is_written_number(expression.base) and isinstance(expression.exp, Integer)
    if isinstance(expression, Mul):
        factors = [factor for factor in expression.args if not _is_scale_factor(factor)]
        return len(factors) <= 1 and all(map(_is_written_number, expression.args))
    return isinstance(expression, FiniteSet | Tuple) and all(
        map(_is_written_number, expression.args)
    )


def _is_scale_factor(factor: Any) -> bool:
    """Whether a factor is only part of a number's notation: a sign, a power of ten, percent, or the
    denominator of a fraction."""
    from sympy import Pow, UnevaluatedExpr

    if isinstance(factor, Pow):
        return bool(factor.base == 10) or bool(factor.exp == -1)
    return isinstance(factor, UnevaluatedExpr) or bool(factor == -1)


def _values(parsed: list[Any]) -> list[Any]:
    from sympy import Basic

    return [_value(item) for item in parsed if isinstance(item, Basic)]


def _value(expression: Any) -> Any:
    """The value of x in `x = 5`, and in `x = 2 + 3 = 5`."""
    from sympy import And, Eq

    while isinstance(expression, And):
        # In the written order: SymPy sorts the arguments.
        expression = getattr(expression, "_unsorted_args", expression.args)[-1]
    return expression.rhs if isinstance(expression, Eq) else expression


def _exit_after(seconds: int) -> None:
    used = resource.getrusage(resource.RUSAGE_SELF)
    limit = seconds + round(used.ru_utime + used.ru_stime)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    if hard == resource.RLIM_INFINITY or limit < hard:
        resource.setrlimit(resource.RLIMIT_CPU, (limit, hard))


if __name__ == "__main__":
    main()
