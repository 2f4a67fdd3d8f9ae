"""Values on their way between processes, one of which is hostile."""

from __future__ import annotations

import json
from collections import Counter, OrderedDict
from fractions import Fraction
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopline.workers.sandbox.inside.plain_values import decode, encode

KEYS = (
    st.none() | st.booleans() | st.integers() | st.text() | st.binary() | st.tuples(st.integers())
)
VALUES = st.recursive(
    KEYS
    | st.floats(allow_nan=False)
    | st.complex_numbers(allow_nan=False)
    | st.sets(KEYS)
    | st.fractions()
    | st.decimals(allow_nan=False),
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(KEYS, inner)
        | st.frozensets(KEYS)
    ),
    max_leaves=10,
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(
            st.sampled_from(
                ["int", "dict", "set", "type", "fraction", "decimal", "reference", "x"]
            ),
            inner,
        )
    ),
    max_leaves=15,
)


def sent(value: Any) -> Any:
    """Send a value there and back as a line of JSON."""
    return decode(json.loads(json.dumps(encode(value))))


@given(VALUES)
def test_plain_data_arrives_unchanged(value: Any) -> None:
    """This includes its type, and values that JSON lacks."""
    assert sent(value) == value
    assert type(sent(value)) is type(value)


@given(JSON)
def test_any_output_of_a_program_is_a_value_or_refused(data: Any) -> None:
    try:
        decode(data)
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError, AttributeError):
        return


def test_a_subclass_arrives_as_its_plain_type() -> None:
    """This way none of its methods runs."""

    class Everything(int):
        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 0

    class Point(NamedTuple):
        x: int
        y: int

    for value, plain in (
        (Everything(3), 3), (Point(1, 2), (1, 2)), (Counter("aab"), {"a": 2, "b": 1}),
        (OrderedDict(a=1), {"a": 1}), (bytearray(b"x"), b"x"),
    ):  # fmt: skip
        assert sent(value) == plain
        assert type(sent(value)) is type(plain)


def test_objects_other_than_plain_data_are_refused_or_referenced() -> None:
    for value in (object(), iter([]), len, Counter, ValueError()):
        with pytest.raises(TypeError, match="is not plain data"):
            encode(value)
        assert encode([value], lambda _: 7) == [{"reference": 7}]
    assert decode([{"reference": 7}], lambda number: number + 1) == [8]
    with pytest.raises(ValueError, match="not a value"):
        decode({"reference": 7})


@pytest.mark.parametrize(
    "data",
    [{"fraction": [1, 0]}, {"fraction": [1, -2]}, {"fraction": [0.5, 1]}, {"decimal": "x"},
     {"decimal": 1}, {"decimal": ["x"]}],
)  # fmt: skip
def test_an_invalid_fraction_or_decimal_is_refused(data: Any) -> None:
    with pytest.raises((ValueError, TypeError), match="not a"):
        decode(data)


def test_a_program_s_own_fraction_class_is_not_plain_data() -> None:
    class Sly(Fraction):
        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = Fraction.__hash__

    with pytest.raises(TypeError, match="Sly is not plain data"):
        encode(Sly(1, 2))


def test_a_value_that_contains_itself_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(RecursionError):
        encode(endless)
