"""Normalizes the numbers in a text: digits of every script, separators of every country, LaTeX,
currency and markup become plain, so that `numbers` reads one notation.

Unambiguous commas and dots are read as such: `1.234.567` and `2.345,67` have grouping dots, `14,50`
and `0,5` a decimal comma, `12,34,567` is grouped as in India. Ambiguous ones are read as in
English, the language of the questions: `1,234` is grouped and `1.234` is not. In parentheses,
`(12,34)`, a comma separates.

The text is untrusted: every pattern is linear.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

from loopline.agents.answers import VULGAR_FRACTIONS

_CHARACTERS = {
    **dict.fromkeys((*range(9), 11, 12, *range(14, 32), 127)),
    0x066B: ".",
    0x066C: ",",
    0x066A: "%",
    0x060C: ",",
    0xFF0C: ",",
    0xFF0E: ".",
    0x3002: ".",
    0xFF05: "%",
    0xFF04: "$",
    0xFF0B: "+",
    0xFF0F: "/",
    0xFF1A: ":",
    0xFF1D: "=",
    0xFF08: "(",
    0xFF09: ")",
    0x2212: "-",
    0xFE63: "-",
    0xFF0D: "-",
    0x2010: "-",
    0x2011: "-",
    0x00B1: "\\pm ",
    0x20AC: "$",
    0x00A3: "$",
    0x20B9: "$",
    0x00A5: "$",
    0xFFE5: "$",
    0x20A9: "$",
    0x20BD: "$",
    0x00B0: " ",
    0x2044: "/",
    0x00B7: "×",
    0x22C5: "×",
    0x200B: None,
    0x200C: None,
    0x200D: None,
    0x200E: None,
    0x200F: None,
    0x2060: None,
    0x2066: None,
    0x2067: None,
    0x2068: None,
    0x2069: None,
    0xFEFF: None,
    0x2019: "'",
    0x02BC: "'",
}
_FOREIGN_DIGIT = re.compile(r"(?![0-9])\d")
_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")
_SUPERSCRIPT_RUN = re.compile(r"([0-9A-Za-z)])(⁻?[⁰¹²³⁴⁵⁶⁷⁸⁹]{1,4})")
_CURRENCY = r"(?:USD|EUR|GBP|CAD|AUD|INR|CHF|BRL|Rs\.?|(?:US|R|A|C|HK|NZ|S|NT)(?=\$))"

_WRAPPER = re.compile(
    r"\\(?:text|textbf|textit|textrm|emph|mathrm|mathbf|mathit|mathsf|operatorname|mbox|boldsymbol)"
    r"\s{0,9}\{([^{}]*)\}"
)
# The exponent of a unit or a variable (m^2, x^{2}) is not a separate number.
_LETTER_EXPONENT = re.compile(r"([A-Za-z])[ ]?\^[ ]?(?:\{[ ]?(-?[0-9]{1,3})[ ]?\}|(-?[0-9]{1,3}))")
_WORD_EXPONENT = re.compile(r"\^\s?\{?\s?(?:st|nd|rd|th)\s?\}?")
_BLANKS = re.compile(r"[ \t]{2,}")

_BEGIN, _END = r"(?<![0-9.,'])", r"(?![0-9]|[.,'][0-9])"
"""Edges of a whole number with all its separators."""


def _remove_separators(separators: str) -> Callable[[re.Match[str]], str]:
    table = str.maketrans("", "", separators)
    return lambda match: match[0].translate(table)


def _normalize_decimal_comma(match: re.Match[str]) -> str:
    return match[0].replace(".", "").replace(" ", "").replace(",", ".")


_Replacement = str | Callable[[re.Match[str]], str]
_SUBSTITUTIONS: tuple[tuple[re.Pattern[str], _Replacement], ...] = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        # Dollars around a formula are not a currency: "$10\\text{ cm}$", but "$5 and $6".
        (
            r"(?<![\\$A-Za-z0-9])\$(?![\s$])((?:[^$\\\n]|\\.){1,300}?)(?<![\s\\])\$(?![$0-9A-Za-z])",
            r" \1 ",
        ),
        (r"\\(?:text)?color\{[A-Za-z!0-9]{1,30}\}", ""),
        (r"\\(?:underline|bm|large|Large|LARGE|huge|Huge|normalsize)(?![A-Za-z])", ""),
        # GSM8K's calculator annotations repeat the text before them.
        (r"<<[^<>\n]{0,120}>>", ""),
        (r"<sup>([-+0-9]{1,4})</sup>", r"^{\1}"),
        (r"</?[A-Za-z][^<>\n]{0,60}>", " "),
        (r"~~[^~\n]{0,200}~~", " "),
        (r"(?<![A-Za-z0-9_])_{1,2}(-?\$?[0-9][0-9.,]{0,40}%?)_{1,2}(?![A-Za-z0-9_])", r" \1 "),
        # Footnotes and their marks.
        (r"(?m)^[ \t]{0,9}\[\^[^\]\n]{1,30}\]:.*$", " "),
        (r"\[\^[^\]\n]{1,30}\]", " "),
        (r"(?<=[0-9A-Za-z.)%*])\[[0-9]{1,3}\]", " "),
        (r"\{,\}|\\text\{,\}", ","),
        (r"(?<=[0-9]),\\! ?(?=[0-9]{3}(?![0-9]))", ","),
        (r"\\!", ""),
        (r"(?<=[0-9])(?:\\[,;: ]|[\u00a0\u202f\u2009\u2007])(?=[0-9]{3}(?![0-9]))", ","),
        (r"[\u00a0\u202f\u2009\u2007]", " "),
        (r"(?<=[0-9])['_](?=[0-9]{3}(?![0-9]))", ""),
        (
            rf"{_BEGIN}[0-9]{{1,3}}(?:[. ][0-9]{{3}}){{1,20}},[0-9]{{1,2}}{_END}",
            _normalize_decimal_comma,
        ),
        (rf"{_BEGIN}[0-9]{{1,3}}(?:\.[0-9]{{3}}){{2,20}}{_END}", _remove_separators(".")),
        (rf"{_BEGIN}[0-9]{{1,3}}(?: [0-9]{{3}}){{2,20}}{_END}", _remove_separators(" ")),
        # "70 000", but not "7 250": only zeros are certainly a group.
        (r"(?<=[0-9]) (?=000(?![0-9]))", ","),
        (rf"(?<![0-9.,'(\[])0,[0-9]{{1,12}}{_END}(?![)\]])", _normalize_decimal_comma),
        (rf"(?<![0-9.,'(\[])[0-9]{{1,9}},[0-9][0-9]{_END}(?![)\]])", _normalize_decimal_comma),
        (
            rf"(?:(?<=\$)|(?<=\$ ))[0-9]{{1,9}},[0-9]{_END}"
            rf"|(?<![0-9.,'(\[])[0-9]{{1,9}},[0-9](?=\s?(?:[%$]|(?!and\b|or\b)[A-Za-z]))",
            _normalize_decimal_comma,
        ),
        (r"\\(?:left|right|displaystyle|bf|it)(?![A-Za-z])", ""),
        (r"\\(?:dfrac|tfrac|cfrac)(?![A-Za-z])", r"\\frac"),
        (r"\\(?:times|cdot)(?![A-Za-z])", "×"),
        # Between two numbers, x is not a variable.
        (r"(?<=[0-9)%]) [xX] (?=\$?[0-9(])", " × "),
        (r"\\(?:approx|simeq)(?![A-Za-z])", "≈"),
        (r"\^\s{0,9}(?:\{\s{0,9})?\\circ\s{0,9}\}?", " "),
        (r"\^?\s?\\degree(?![A-Za-z])", " "),
        (r"\\(?:quad|qquad|enspace)(?![A-Za-z])", " "),
        (r"\\\$", "$"),
        (r"\\%", "%"),
        (r"\\(?:euro|pounds)(?![A-Za-z])", "$"),
        (r"\\[()\[\]]", " "),
        (r"\\[,;: ]|~", " "),
        (rf"(?<![A-Za-z]){_CURRENCY}\s{{0,3}}(?=[-+0-9.$])", "$"),
        (r"\${2}(?=[0-9])", "$"),
        # A dash between two numbers is a range, not a minus sign.
        (
            r"(?<=[0-9%]) ?– ?(?=\$?[0-9])"
            r"|(?<=[0-9%])(?<![\^_][0-9])(?<![\^_][0-9]{2})-(?=\$?[0-9])",
            " to ",
        ),
        ("–", "-"),
        (r"(?<=[0-9]),? (?:with )?(?:a )?remainder(?: of)? [0-9]{1,12}", " "),
    )
)


def clean(text: str) -> str:
    """Return the text in the notation that `numbers` reads."""
    text = _FOREIGN_DIGIT.sub(lambda digit: str(unicodedata.decimal(digit[0])), text)
    text = text.translate(_CHARACTERS)
    text = _SUPERSCRIPT_RUN.sub(lambda m: f"{m[1]}^{m[2].translate(_SUPERSCRIPTS)}", text)
    for sign, plain in VULGAR_FRACTIONS.items():
        if sign in text:
            text = re.sub(rf"(?<=[0-9])[ ]?{sign}", f" {plain}", text).replace(sign, plain)
    for pattern, replacement in _SUBSTITUTIONS:
        text = pattern.sub(replacement, text)
    for _ in range(3):
        unwrapped = _WRAPPER.sub(r" \1 ", text)
        if unwrapped == text:
            break
        text = unwrapped
    text = _BLANKS.sub(" ", _WORD_EXPONENT.sub(" ", text))
    return _LETTER_EXPONENT.sub(_raise_letter, text)


def _raise_letter(match: re.Match[str]) -> str:
    """Keep squares and cubes of units, as characters that are not numbers."""
    return match[1] + {"2": "²", "3": "³"}.get(match[2] or match[3], "")
