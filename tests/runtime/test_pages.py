"""The frame of all pages, and charts over steps."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from loopline.runtime.terminal.pages.curves import (
    MAX_COORDINATE,
    MAX_POINTS,
    Curve,
    Point,
    curves_plot,
    number,
)
from loopline.runtime.terminal.pages.page import figure, page, table
from tests.runtime.parsed_page import ParsedPage

EVIL = "</title></script><script>alert(1)</script><img src=x onerror=alert(2)>"


def test_a_page_runs_only_its_own_script() -> None:
    body = figure("", EVIL, EVIL) + table([EVIL], [[EVIL]])
    parsed = ParsedPage(page(EVIL, body, style="p { color: red; }", script="fold();"))
    parsed.require_harmless()
    assert parsed.scripts == ["fold();"]
    assert parsed.text.count(EVIL) == 5


def test_a_page_without_a_script_allows_none() -> None:
    parsed = ParsedPage(page("title", "<p>body</p>"))
    parsed.require_harmless()
    assert "script-src" not in str(parsed.of("meta"))


def test_the_name_of_a_curve_is_escaped() -> None:
    points = [Point.at(1, 2), Point.at(2, 3)]
    parsed = ParsedPage(curves_plot(EVIL, [Curve(EVIL, points), Curve("other", points)]))
    assert not parsed.of("script")
    assert not parsed.of("img")


def test_values_that_are_not_finite_are_left_out() -> None:
    assert curves_plot("loss", [Curve("a", [Point.at(1, math.nan), Point.at(2, math.inf)])]) == ""
    drawn = curves_plot("loss", [Curve("a", [Point.at(1, math.nan), Point.at(2, 0.5)])])
    assert "nan" not in drawn
    assert drawn.count("<circle") == 1


def test_a_line_of_zeros_has_a_readable_axis() -> None:
    points = [Point.at(step, 0.0) for step in range(5)]
    drawn = curves_plot("share", [Curve("a", points)], least=0.0)
    assert ">0.5<" in drawn
    assert "e−" not in drawn


def test_a_long_line_is_drawn_as_means_with_their_range() -> None:
    points = [Point.at(step, 1.0 if step % 2 else 0.0) for step in range(100_000)]
    drawn = curves_plot("loss", [Curve("a", points)])
    assert drawn.count("<circle") <= MAX_POINTS
    assert "spread" in drawn
    assert "a: 0.5 at step" in drawn
    assert len(drawn) < 60_000


@given(
    st.lists(
        st.tuples(
            st.floats(-1e6, 1e6, allow_nan=False), st.floats(allow_nan=True, allow_infinity=True)
        ),
        max_size=400,
    )
)
@example([(0.0, 1.0), (5e-324, 1.0)])
@example([(0.0, 1.0), (1e-307, 1.0)])
def test_every_line_stays_inside_its_drawing(values: list[tuple[float, float]]) -> None:
    drawn = curves_plot("any", [Curve("a", [Point.at(x, y) for x, y in values])])
    if not any(abs(y) <= MAX_COORDINATE for _, y in values):
        assert drawn == ""
        return
    width, height = map(float, re.findall(r'viewBox="0 0 (\S+) (\S+)"', drawn)[0])
    for x, y in re.findall(r'cx="([^"]+)" cy="([^"]+)"', drawn):
        assert 0 <= float(x) <= width
        assert 0 <= float(y) <= height


def test_numbers_have_three_significant_digits() -> None:
    assert [number(value) for value in (0.0, 0.01234, -0.5, 1234.4, 3e7, 1e-7, 2e9)] == [
        "0", "0.0123", "−0.5", "1,234", "30 M", "1.0e−07", "2e+09",
    ]  # fmt: skip
    assert [number(value) for value in (999.6, -999.6, 9_999_999.7, 999.6e6)] == [
        "1,000", "−1,000", "10 M", "1e+09",
    ]  # fmt: skip
    assert [number(value) for value in (9.9996e-4, 9.9949e-4, 9.94e-4, 9.4e-4)] == [
        "0.001", "0.000999", "9.9e−04", "9.4e−04",
    ]  # fmt: skip


@given(st.floats(-1e12, 1e12).filter(bool))
def test_formatting_rounds_a_number_and_is_idempotent(value: float) -> None:
    text = number(value).replace("−", "-").replace(",", "")
    approximation = float(text.removesuffix(" M")) * (1e6 if text.endswith("M") else 1)
    assert approximation == pytest.approx(value, rel=0.051)
    assert number(approximation) == number(value)
