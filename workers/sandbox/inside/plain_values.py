"""Values exchanged with a hostile process: plain data as JSON, nothing executable.

A value that is not plain data (an object of the program's own, a generator, a function) is written
as a reference that only its owner can resolve. A subclass of a plain type is written as that type,
without its methods; a subclass of `Fraction` or `Decimal` is not plain data.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

MAX_EXACT = 2**53
"""Larger integers are written in hexadecimal, which has no limit on the number of digits."""


def encode(value: Any, refer: Callable[[Any], int] | None = None) -> Any:
    """The value as JSON types. Raises TypeError for a value that is not plain data unless `refer`
    gives it a number, and RecursionError for a value that contains itself."""
    if value is None or value is True or value is False:
        return value
    if isinstance(value, int):
        number = int(value)
        return number if abs(number) <= MAX_EXACT else {"int": hex(number)}
    if isinstance(value, float):
        number = float(value)
        return number if number - number == 0 else {"float": repr(number)}
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, complex):
        return {"complex": [encode(value.real), encode(value.imag)]}
    if isinstance(value, bytes | bytearray):
        return {"bytes": bytes(value).hex()}
    if isinstance(value, list):
        return [encode(item, refer) for item in list.__iter__(value)]
    if isinstance(value, tuple):
        return {"tuple": [encode(item, refer) for item in tuple.__iter__(value)]}
    if isinstance(value, set | frozenset):
        kind = "set" if isinstance(value, set) else "frozenset"
        return {kind: [encode(item, refer) for item in value]}
    if isinstance(value, dict):
        pairs = dict.items(value)
        return {"dict": [[encode(key, refer), encode(item, refer)] for key, item in pairs]}
    if isinstance(value, type) and _TYPES.get(value.__name__) is value:
        return {"type": value.__name__}
    if (exact := _exact(value)) is not None:
        return exact
    if refer is None:
        raise TypeError(f"{type(value).__name__} is not plain data")
    return {"reference": refer(value)}


def decode(data: Any, follow: Callable[[int], Any] | None = None) -> Any:
    """Decode the output of `encode`. Raises ValueError, TypeError, KeyError or RecursionError for
    any other input, also for a reference without `follow`."""
    if isinstance(data, list):
        return [decode(item, follow) for item in data]
    if not isinstance(data, dict):
        return data
    if len(data) != 1:
        raise ValueError("not a value")
    ((kind, content),) = data.items()
    if kind == "dict":
        return {decode(key, follow): decode(item, follow) for key, item in content}
    if kind in _SEQUENCES:
        return _SEQUENCES[kind](decode(item, follow) for item in content)
    if kind == "int":
        return int(content, 16)
    if kind == "float":
        return float(content)
    if kind == "complex":
        real, imaginary = content
        return complex(decode(real), decode(imaginary))
    if kind == "bytes":
        return bytes.fromhex(content)
    if kind == "fraction":
        return _fraction(*(decode(item) for item in content))
    if kind == "decimal":
        return _decimal(content)
    if kind == "type":
        return _TYPES[content]
    if kind == "reference" and follow is not None and isinstance(content, int):
        return follow(content)
    raise ValueError("not a value")


def _exact(value: Any) -> Any:
    # A process that has such a value has imported its module; others skip the import.
    fractions, decimal = sys.modules.get("fractions"), sys.modules.get("decimal")
    if fractions is not None and type(value) is fractions.Fraction:
        return {"fraction": [encode(value.numerator), encode(value.denominator)]}
    if decimal is not None and type(value) is decimal.Decimal:
        return {"decimal": str(value)}
    return None


def _fraction(numerator: Any, denominator: Any) -> Any:
    from fractions import Fraction

    if type(numerator) is not int or type(denominator) is not int or denominator < 1:
        raise ValueError("not a fraction")
    return Fraction(numerator, denominator)


def _decimal(text: Any) -> Any:
    from decimal import Decimal, InvalidOperation

    if not isinstance(text, str):
        raise TypeError("not a decimal")
    try:
        return Decimal(text)
    except InvalidOperation as error:
        raise ValueError("not a decimal") from error


_TYPES: dict[str, type] = {
    plain.__name__: plain
    for plain in (bool, int, float, complex, str, bytes, list, tuple, set, frozenset, dict)
}
_SEQUENCES: dict[str, Callable[[Any], Any]] = {"tuple": tuple, "set": set, "frozenset": frozenset}
