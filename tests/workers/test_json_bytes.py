"""Integers of any length are written."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopline.workers.json_bytes import json_bytes

_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text("ab"), inner),
)


@given(_VALUES)
def test_every_value_of_json_is_written_whole(value: object) -> None:
    assert json.loads(json_bytes(value)) == value


@given(st.dictionaries(st.text("abc"), st.integers()))
def test_the_order_of_names_does_not_matter_where_they_are_sorted(value: dict[str, int]) -> None:
    turned = dict(reversed(value.items()))
    assert json_bytes(value, sort_keys=True) == json_bytes(turned, sort_keys=True)


def test_what_json_does_not_have_is_refused() -> None:
    with pytest.raises(TypeError):
        json_bytes({"x": object()})
