"""Money is shown with enough digits that a small amount does not look like zero."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopline.runtime.observe.cost_words import format_dollars, spent_words


@pytest.mark.parametrize(
    ("dollars", "words"),
    [
        (0, "$0.0000"),
        (0.000_001, "$0.0000010"),
        (0.000_023, "$0.000023"),
        (0.000_049, "$0.000049"),
        (0.001_2, "$0.0012"),
        (0.123_456, "$0.1235"),
        (1_234.5, "$1,234.5000"),
        (1e-12, "$0.00000000"),
    ],
)
def test_an_amount_has_four_decimals_and_two_significant_digits(dollars: float, words: str) -> None:
    assert format_dollars(dollars) == words


def test_an_unknown_part_is_shown_with_the_known_amount() -> None:
    assert spent_words(23, all_known=False, none_known=False) == "$0.000023 + unknown"
    assert spent_words(0, all_known=False, none_known=True) == "unknown"
    assert spent_words(0, all_known=True, none_known=False) == "$0.0000"


@given(st.integers(1, 10**12), st.integers(0, 6))
def test_every_amount_of_the_ledger_is_shown_within_five_percent(
    micro_dollars: int, decimals: int
) -> None:
    amount = float(format_dollars(micro_dollars / 1e6, decimals)[1:].replace(",", ""))
    assert math.isclose(amount, micro_dollars / 1e6, rel_tol=0.05)
