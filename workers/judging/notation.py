r"""One notation for the formulas of an answer: LaTeX with one command for each meaning, also for
formulas that a model wrote as characters (`√3/2`) or that a program printed (`sqrt(3)/2`)."""

from __future__ import annotations

import re

_DEGREES = (
    r"(?:\^\s{0,9}(?:\\circ(?![A-Za-z])|\{\s{0,9}\\circ\s{0,9}\})|°|\^?\s?\\degree(?![A-Za-z]))"
)
_PLAIN: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"\\(?:left|right|displaystyle|textstyle|[bB]igg?[lr]?)(?![A-Za-z])\.?", ""),
        (r"\\(?:large|Large|LARGE|huge|Huge|normalsize)(?![A-Za-z])", ""),
        (r"\\(?:text)?color\s{0,9}\{[A-Za-z!0-9]{1,30}\}", ""),
        (r"\\(?:boldsymbol|bm|underline)(?=\s{0,9}\{)", ""),
        (r"\\(?:mathbf|textbf)(?=\s{0,9}\{[^{}]{0,200}[\\{])", ""),
        (r"\\[dtc]frac(?![A-Za-z])", r"\\frac"),
        (r"\\[dt]binom(?![A-Za-z])", r"\\binom"),
        (r"\\big(cup|cap)(?![A-Za-z])", r"\\\1"),
        (r"\\lg(?![A-Za-z])", r"\\log_{10}"),
        (r"\\sqrt\s{0,9}([0-9A-Za-z])", r"\\sqrt{\1}"),
        # An argument without braces is one character or one command.
        (r"([_^])\s?([0-9A-Za-z])(?=\s)", r"\1{\2}"),
        (
            r"\\frac(?:\s{0,9}([0-9])|\s{1,9}([A-Za-z])|\s{0,9}(\\pi)(?![A-Za-z]))",
            r"\\frac{\1\2\3}",
        ),
        (
            r"(\\frac\s{0,9}\{(?:[^{}]++|\{[^{}]*+\})*+\})\s{0,9}([0-9A-Za-z]|\\(?!text)[A-Za-z]++)",
            r"\1{\2}",
        ),
        (r"\(\s{0,9}\\begin\{array\}\{[lcr| ]{0,20}\}", r"\\begin{pmatrix}"),
        (r"\\end\{array\}\s{0,9}\)", r"\\end{pmatrix}"),
        (r"(\A|\\in)\s{0,9}(?:\\mathbb\s{0,9}\{?\s?R\s?\}?|ℝ)\s{0,9}\Z", r"\1 (-\\infty,\\infty)"),
        (r"(?<=[0-9]),?\\[!,] ?(?=[0-9]{3}(?![0-9]))", ""),
        (r"\\\\\s{0,9}(?=\\end\{)", ""),
        (r"\\(?:quad|qquad|enspace)(?![A-Za-z])|(?<!\\)\\[,;:! ]|~", " "),
        (
            r"(\\(?:sin|cos|tan|cot|sec|csc)(?:\s?\^\s?(?:[0-9]|\{[0-9]\}))?\s{0,9}[({]?)\s{0,9}"
            rf"([0-9]+(?:\.[0-9]+)?)\s?{_DEGREES}",
            r"\1\\frac{\2\\pi}{180}",
        ),
        (_DEGREES, " "),
        (r"\^\s?(?:\{\s?((?:\\prime\s?)+)\}|(\\prime)(?![A-Za-z]))|′", "'"),
        (r"\\(?:leqslant|leq)(?![A-Za-z])|[≤⩽]|<=", r"\\le "),
        (r"\\(?:geqslant|geq)(?![A-Za-z])|[≥⩾]|>=", r"\\ge "),
        (r"\\(?:neq)(?![A-Za-z])|≠|!=", r"\\ne "),
        (r"\\lt(?![A-Za-z])", "<"),
        (r"\\gt(?![A-Za-z])", ">"),
        (r"\\varnothing(?![A-Za-z])|∅|\\\{\s{0,9}\\\}", r"\\emptyset "),
        (r"∪", r"\\cup "),
        (r"∞", r"\\infty "),
        (r"π", r"\\pi "),
        (r"[−–]", "-"),
        (r"×|·", r"\\cdot "),
        (r"\\times(?![A-Za-z])", r"\\cdot "),
        (r"\\lbrace(?![A-Za-z])", r"\\{"),
        (r"\\rbrace(?![A-Za-z])", r"\\}"),
        (r"(?<=[0-9])\{,\}(?=[0-9]{3})", ""),
    )
)
_RAISED = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ]{1,20}")
_LOWERED = re.compile("[₀₁₂₃₄₅₆₇₈₉₊₋ₙ]{1,20}")
_ON_THE_LINE = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ₀₁₂₃₄₅₆₇₈₉₊₋ₙ", "0123456789+-n" * 2)

_PRINTED: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"(?<=[0-9A-Za-z)])\*\*(-?[0-9]+|[A-Za-z])(?![0-9A-Za-z])", r"^{\1}"),
        (r"(?<=[0-9A-Za-z)])\*\*(?=\()", "^"),
        (r"√", "sqrt"),
        (r"(?<![A-Za-z\\])sqrt\s?([0-9]+)", r"\\sqrt{\1}"),
        (r"(?<![A-Za-z\\])sqrt(?![A-Za-z])", r"\\sqrt"),
        (r"(?<![A-Za-z\\])pi(?![A-Za-z])", r"\\pi "),
        (r"(?<![A-Za-z\\])exp(?=\()", "e^"),
        (r"(?<![A-Za-z\\])a(?:rc)?(sin|cos|tan)(?=\()", r"\\arc\1"),
        (r"(?<![A-Za-z\\])((?:sin|cos|tan)h?|cot|sec|csc|log|ln)(?=\()", r"\\\1"),
    )
)
"""Functions, roots and powers as programs print them, without LaTeX's backslash and braces."""
_TAKES_BRACES = re.compile(r"(?:\\sqrt(?:\[[^\[\]]{1,20}\])?|\^)\s{0,9}(?=\()")


def in_one_notation(text: str) -> str:
    """The text with each formula in LaTeX, and with one command for each meaning."""
    text = _RAISED.sub(lambda match: f"^{{{match[0].translate(_ON_THE_LINE)}}}", text)
    text = _LOWERED.sub(lambda match: f"_{{{match[0].translate(_ON_THE_LINE)}}}", text)
    for pattern, replacement in _PRINTED:
        text = pattern.sub(replacement, text)
    text = _with_braces(text)
    for pattern, replacement in _PLAIN:
        text = pattern.sub(replacement, text)
    return text


def _with_braces(text: str) -> str:
    r"""Roots and exponents in braces rather than in parentheses: `\sqrt(2)` is `\sqrt{2}`."""
    openings = {match.end() for match in _TAKES_BRACES.finditer(text)}
    if not openings:
        return text
    characters, stack = list(text), list[int]()
    for at, character in enumerate(text):
        if character == "(":
            stack.append(at)
        elif character == ")" and stack and (opened := stack.pop()) in openings:
            characters[opened], characters[at] = "{", "}"
    return "".join(characters)
