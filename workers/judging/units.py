"""Units of measure in answers: 5 cm is not 5 km, and 5,000 m is 5 km.

A unit that is not listed (apples, people) is ignored: any two of them are considered the same.
"""

from __future__ import annotations

import re
from fractions import Fraction

_LISTED: dict[str, tuple[tuple[str, Fraction | int | str], ...]] = {
    "length": (
        ("mm millimeter millimetre", Fraction(1, 1000)), ("cm centimeter centimetre", "1/100"),
        ("dm decimeter decimetre", "1/10"), ("m meter metre", 1), ("km kilometer kilometre", 1000),
        ("in inch inche", "0.0254"), ("ft foot feet", "0.3048"), ("yd yard", "0.9144"),
        ("mi mile", "1609.344"),
    ),
    "mass": (
        ("mg milligram", "1/1000"), ("g gram", 1), ("kg kilogram", 1000),
        ("lb pound", "453.59237"), ("oz ounce", "28.349523125"), ("ton tonne", 10**6),
    ),
    "volume": (
        ("ml milliliter millilitre", "1/1000"), ("l liter litre", 1), ("cl centiliter", "1/100"),
        ("cup", "0.2365882365"), ("pint", "0.473176473"), ("quart", "0.946352946"),
        ("gallon", "3.785411784"),
    ),
    "time": (
        ("s sec second", 1), ("min minute", 60), ("h hr hour", 3600), ("day", 86400),
        ("week", 604800), ("month", 2629800), ("year", 31557600),
    ),
    "dollars": (("cent ¢", "1/100"), ("dollar $ usd", 1)),
    "euros": (("euro € eur", 1),),
    "pounds sterling": (("£ gbp", 1),),
    "yen": (("yen ¥", 1),),
    "force": (("N newton", 1), ("kN", 1000)),
    "energy": (("J joule", 1), ("kJ kilojoule", 1000), ("kWh", 3_600_000)),
    "power": (("W watt", 1), ("kW kilowatt", 1000)),
    "pressure": (("Pa pascal", 1), ("kPa", 1000)),
    "voltage": (("V volt", 1),),
    "frequency": (("Hz hertz", 1), ("kHz", 1000)),
    "celsius": (("C celsius", 1),),
    "fahrenheit": (("F fahrenheit", 1),),
    "angle": (("degree °", 1), ("radian rad", "57.29577951308232")),
}  # fmt: skip
_UNITS: dict[str, tuple[str, Fraction]] = {
    name: (dimension, Fraction(factor))
    for dimension, units in _LISTED.items()
    for names, factor in units
    for name in names.split()
}

_Dimensions = tuple[tuple[str, int], ...]

_SQUARE = re.compile(r"(?P<power>square|sq\.?|cubic)\s+(?P<name>[A-Za-z]{1,20})", re.IGNORECASE)
_TERM = re.compile(
    r"\s{0,3}(?P<per>/|\bper\b)?\s{0,3}(?P<name>[A-Za-z]{1,20}|[$€£¥¢°])"
    r"(?:\s?\^\s?\{?\s?(?P<exponent>[0-9])\s?\}?|(?P<sign>[²³]))?"
)
_SPEED = {"mph": "mi/h", "kph": "km/h", "kmh": "km/h"}
_SPEEDS = re.compile(r"(?<![A-Za-z])(?:mph|kph|kmh)(?![A-Za-z])", re.IGNORECASE)
_TEMPERATURES = frozenset({"celsius", "fahrenheit"})
_LAYOUT = re.compile(
    r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mbox|operatorname)\s{0,9}(?=\{)|\\[,;:! ]|[{}~]"
)


def unit_of(text: str) -> tuple[_Dimensions, Fraction] | None:
    """The unit on either side of a number, from the text around it: its dimensions with their
    powers, and its size in base units. None without a listed unit."""
    text = re.sub(r"\^\s?\{?\s?\\circ\s?\}?", "°", text).replace("\\$", "$")
    text = _SPEEDS.sub(lambda m: _SPEED[m[0].lower()], _LAYOUT.sub(" ", text))
    text = _SQUARE.sub(lambda m: f"{m['name']}^{3 if m['power'].lower() == 'cubic' else 2}", text)
    powers: dict[str, int] = {}
    scale = Fraction(1)
    for term in _TERM.finditer(text[:200]):
        name = term["name"]
        singular = name.lower().removesuffix("s")
        unit = _UNITS.get(name) or _UNITS.get(name.lower()) or _UNITS.get(singular)
        if unit is None or (len(name) > 1 and name[-1] in "sS" and name[:-1].lower() in _SHORT):
            continue
        dimension, factor = unit
        power = int(term["exponent"] or {"²": 2, "³": 3}.get(term["sign"] or "", 1))
        power = -power if term["per"] else power
        powers[dimension] = powers.get(dimension, 0) + power
        scale *= factor**power
    if _TEMPERATURES & powers.keys():
        powers.pop("angle", None)
    return (tuple(sorted(powers.items())), scale) if powers else None


_SHORT = frozenset(name for name in _UNITS if len(name) == 1)
"""Units that have no plural: `ms` is not metres."""


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
