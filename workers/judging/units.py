"""Units of measure in answers: 5 cm is not 5 km, 5,000 m is 5 km, and 2 N·m are 2 J.

A unit that is not listed (apples, people) is ignored: any two of them are considered the same.
"""

from __future__ import annotations

import re
from fractions import Fraction

# Names, the first of which takes the prefixes' signs; size; in which unit or dimension; prefixes.
_LISTED: tuple[tuple[str, int | str, str, str], ...] = (
    ("m meter metre", 1, "length", "kdcmµn"), ("in inch inche", "2.54", "cm", ""),
    ("ft foot feet", "0.3048", "m", ""), ("yd yard", "0.9144", "m", ""),
    ("mi mile", "1609.344", "m", ""),
    ("g gram", 1, "mass", "kmµ"), ("lb pound", "453.59237", "g", ""),
    ("oz ounce", "28.349523125", "g", ""), ("ton tonne", 1000, "kg", ""),
    ("l liter litre", 1, "dm^3", "dcmµ"), ("cup", "0.2365882365", "l", ""),
    ("pint", "0.473176473", "l", ""), ("quart", "0.946352946", "l", ""),
    ("gallon", "3.785411784", "l", ""),
    ("s second sec", 1, "time", "mµn"), ("min minute", 60, "s", ""), ("h hr hour", 3600, "s", ""),
    ("day", 86_400, "s", ""), ("week", 604_800, "s", ""), ("month", 2_629_800, "s", ""),
    ("year", 31_557_600, "s", ""), ("Hz hertz", 1, "s^-1", "kMG"),
    ("cent ¢", "1/100", "dollars", ""), ("dollar $ usd", 1, "dollars", ""),
    ("euro € eur", 1, "euros", ""), ("£ gbp", 1, "sterling", ""), ("yen ¥", 1, "yen", ""),
    ("C celsius", 1, "celsius", ""), ("F fahrenheit", 1, "fahrenheit", ""),
    ("degree °", 1, "angle", ""), ("radian rad", "57.29577951308232", "degree", ""),
    ("A ampere amp", 1, "current", "kmµn"), ("mol mole", 1, "amount", "km"),
    ("N newton", 1, "kg m/s^2", "kMm"), ("Pa pascal", 1, "N/m^2", "kMGh"),
    ("J joule", 1, "N m", "kMGm"), ("Nm", 1, "J", ""), ("W watt", 1, "J/s", "kMGm"),
    ("Wh", 3600, "J", "kMG"), ("cal calorie", "4.184", "J", "k"),
    ("eV", "1.602176634e-19", "J", "kMG"), ("V volt", 1, "W/A", "kMm"),
    ("Ω ohm", 1, "V/A", "kMm"),
)  # fmt: skip
_PREFIXES = {
    "G": ("giga", 9), "M": ("mega", 6), "k": ("kilo", 3), "h": ("hecto", 2), "d": ("deci", -1),
    "c": ("centi", -2), "m": ("milli", -3), "µ": ("micro", -6), "n": ("nano", -9),
}  # fmt: skip
_EXACT = frozenset({"ms", "ns", "nm"})
"""Symbols whose letters mean something else in another case: `Nm` is not `nm`."""

_Dimensions = tuple[tuple[str, int], ...]

_SQUARE = re.compile(r"(?P<power>square|sq\.?|cubic)\s+(?P<name>[A-Za-z]{1,20})", re.IGNORECASE)
_TERM = re.compile(
    r"\s{0,3}(?P<per>/|\bper\b)?\s{0,3}(?P<name>[A-Za-zµΩ]{1,20}|[$€£¥¢°])"
    r"(?:\s?\^\s?\{?\s?(?P<exponent>[-−]?[0-9])\s?\}?|(?P<raised>⁻?[¹²³])"
    r"|(?P<glued>-?[1-3])(?![0-9.])|\s(?P<word>squared|cubed)\b)?"
)
_ON_THE_LINE = str.maketrans("−⁻¹²³", "--123")
_SPEED = {"mph": "mi/h", "kph": "km/h", "kmh": "km/h"}
_SPEEDS = re.compile(r"(?<![A-Za-z])(?:mph|kph|kmh)(?![A-Za-z])", re.IGNORECASE)
_TEMPERATURES = frozenset({"celsius", "fahrenheit"})
_LAYOUT = re.compile(
    r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mbox|operatorname)\s{0,9}(?=\{)|\\[,;:! ]|[{}~]"
)
_CIRCLE = re.compile(r"\^\s?\{?\s?\\circ\s?\}?|\^?\s?\\degree(?![A-Za-z])")
_SIGNS = (
    (_CIRCLE, "°"),
    (_LAYOUT, " "),
    (re.compile(r"(?:\\mu(?![A-Za-z])|\u03bc)\s{0,3}"), "µ"),
    (re.compile(r"\\Omega(?![A-Za-z])|\u2126"), "Ω"),
    (re.compile(r"\\\$"), "$"),
)


# Up to the first letter, apart from those of a fraction, a product or a power of ten.
_NUMBER = re.compile(
    r"(?:[^A-Za-zµ\u03bcΩ\u2126°~\\]|\\(?:times|cdot|[dt]?frac)(?![A-Za-z])|\\[,;:! ])*+", re.DOTALL
)
_PRODUCT = re.compile(r"\\cdot(?![A-Za-z])|[·⋅*]")
_UNIT = re.compile(
    r"(?:\s*+/?\s*+[A-Za-zµΩ°]++(?:\s?\^\s?[-−]?[0-9]|⁻?[¹²³]|-?[1-3](?![0-9]))?)+\s*+"
)
_POWER_WORDS = frozenset({"per", "square", "cubic", "squared", "cubed"})
_MAX_QUANTITY_CHARS = 200


def quantity(text: str) -> tuple[str, str] | None:
    """The number and the unit of a text that consists of a number and listed units, which may be
    multiplied, divided and raised to powers; None for another text."""
    if len(text) > _MAX_QUANTITY_CHARS:
        return None
    text = _CIRCLE.sub("°", text.strip().removesuffix(".").strip("$ "))
    number = _NUMBER.match(text)
    assert number is not None
    unit = _PRODUCT.sub(" ", _with_signs(text[number.end() :])).strip()
    words = re.findall("[A-Za-zµΩ]+|°", unit)
    if not _UNIT.fullmatch(unit) or not all(w in _POWER_WORDS or _listed(w) for w in words):
        return None
    return number[0].rstrip(" \\,;:!"), unit


def unit_of(text: str) -> tuple[_Dimensions, Fraction] | None:
    """The unit on either side of a number, from the text around it: its dimensions with their
    powers, and its size in base units. None without a listed unit."""
    text = _with_signs(text)
    text = _SPEEDS.sub(lambda m: _SPEED[m[0].lower()], text)
    text = _SQUARE.sub(lambda m: f"{m['name']}^{3 if m['power'].lower() == 'cubic' else 2}", text)
    powers: dict[str, int] = {}
    scale: Fraction | None = None
    for term in _TERM.finditer(text[:200]):
        unit = _listed(term["name"])
        if unit is None:
            continue
        power = -_power(term) if term["per"] else _power(term)
        for dimension, exponent in unit[0]:
            powers[dimension] = powers.get(dimension, 0) + exponent * power
        scale = (1 if scale is None else scale) * unit[1] ** power
    if _TEMPERATURES & powers.keys():
        powers.pop("angle", None)
    return None if scale is None else (tuple(sorted(p for p in powers.items() if p[1])), scale)


def _with_signs(text: str) -> str:
    for pattern, sign in _SIGNS:
        text = pattern.sub(sign, text)
    return text


def _power(term: re.Match[str]) -> int:
    if term["word"]:
        return 2 if term["word"] == "squared" else 3
    return int((term["exponent"] or term["raised"] or term["glued"] or "1").translate(_ON_THE_LINE))


def _listed(name: str) -> tuple[_Dimensions, Fraction] | None:
    """A unit by its name; words also in the plural and in other cases. One letter has no plural:
    `ms` is not metres."""
    if name in _UNITS:
        return _UNITS[name]
    lower = name.lower()
    singular = lower.removesuffix("s")
    return next(
        (
            _UNITS[form]
            for form in (lower, singular)
            if form in _UNITS and form not in _EXACT and (form == lower or len(form) > 1)
        ),
        None,
    )


_UNITS: dict[str, tuple[_Dimensions, Fraction]] = {}


def _list_units() -> None:
    for names, size, base, prefixes in _LISTED:
        dimensions, factor = unit_of(base) or (((base, 1),), Fraction(1))
        unit = Fraction(size) * factor
        symbol, *words = names.split()
        _UNITS.update((name, (dimensions, unit)) for name in (symbol, *words))
        for prefix in prefixes:
            word, power = _PREFIXES[prefix]
            larger = dimensions, unit * Fraction(10) ** power
            _UNITS[f"{prefix}{symbol}"] = larger
            _UNITS.update((f"{word}{name}", larger) for name in words if len(name) > 2)


_list_units()


def same_measure(
    value: Fraction, around_one: str, other_value: Fraction, around_other: str
) -> bool | None:
    """Whether two numbers with units are equal; None if one of them has no unit."""
    first, second = unit_of(around_one), unit_of(around_other)
    if first is None or second is None:
        return None
    dimensions = {name for unit in (first, second) for name, _ in unit[0]}
    if "angle" in dimensions and dimensions & _TEMPERATURES:
        return None  # an angle versus a temperature in degrees
    return first[0] == second[0] and value * first[1] == other_value * second[1]
