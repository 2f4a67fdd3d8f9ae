"""Integers of any length are written."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopline.workers.json_bytes import json_bytes

_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters()),
    lambda inner: st.lists(inner) | st.dictionaries(st.text("ab"), inner),
)


@given(_VALUES)
def test_every_json_value_is_written_completely(value: object) -> None:
    assert json.loads(json_bytes(value)) == value


@given(st.dictionaries(st.text("abc"), st.integers()))
def test_the_order_of_names_does_not_matter_when_they_are_sorted(value: dict[str, int]) -> None:
    turned = dict(reversed(value.items()))
    assert json_bytes(value, sort_keys=True) == json_bytes(turned, sort_keys=True)


def test_values_that_json_cannot_express_are_refused() -> None:
    with pytest.raises(TypeError):
        json_bytes({"x": object()})


def test_numbers_that_json_cannot_express_become_null_next_to_long_ones() -> None:
    value = {"long": 10**25, "odd": [float("nan"), float("inf"), 0.5]}
    assert json_bytes(value) == b'{"long":10000000000000000000000000,"odd":[null,null,0.5]}'


def test_half_of_a_surrogate_pair_is_written_unchanged() -> None:
    assert json_bytes(["\ud800"]) == b'["\\ud800"]'
