"""Answers are taken from the last box and read as exact numbers."""

from __future__ import annotations

import sys
import time
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopline.agents.answers import (
    MAX_ANSWER_BYTES,
    final_answer,
    last_boxed,
    parse_number,
    strip_latex,
)


@pytest.mark.parametrize(
    ("text", "boxed"),
    [
        (r"so \boxed{42}.", "42"),
        (r"first \boxed{1}, then \boxed{2}", "2"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{\text{a {b} c}}", r"\text{a {b} c}"),
        (r"\boxed {7}", "7"),
        (r"\fbox{8} and \fboxed{8}", "8"),
        (r"\boxed{\boxed{5}}", "5"),
        (r"\boxed{3} and an open \boxed{4", "3"),
        (r"\boxed{}", ""),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        ("no box at all: 42", None),
        (r"\boxed{never closed", None),
        ("", None),
    ],
)
def test_the_last_complete_box_counts(text: str, boxed: str | None) -> None:
    assert last_boxed(text) == boxed


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"The answer is \boxed{1{,}000}.", "1,000"),
        (r"\boxed{\$18.00}", "$18.00"),
        (r"\boxed{\text{Tuesday}}", "Tuesday"),
        (r"\boxed{70\,000}", "70000"),
        (r"\boxed{20\%}", "20%"),
        (r"\boxed{90^\circ}", "90°"),
        (r"\boxed{5~\text{cm}}", "5 cm"),
        (r"\boxed{~/notes at 20 °C.}", "~/notes at 20 °C."),
        (r"<think>\boxed{90}?</think>So \boxed{96}", "96"),
    ],
)
def test_a_final_answer_is_the_content_of_its_box(text: str, answer: str) -> None:
    assert final_answer(text) == answer


@pytest.mark.parametrize(
    "text",
    [
        "It is $42$.",
        "He pays $5 and she pays $6.",
        "Two:\n\n- 20 °C ~ 68 °F\n- `~/bin` & 5 %\n\n```python\nif x:\n    f(x)\n```\nDone.",
        "    indented = 1",
        "x" * 50_000 + ".",
    ],
)
def test_an_answer_without_a_box_is_delivered_verbatim(text: str) -> None:
    assert final_answer(f"\n\n{text}\n") == text
    assert final_answer(f"<think>Is it \\boxed{{3}}?</think>\n\n{text}\n") == text


def test_an_oversized_answer_is_marked_as_truncated() -> None:
    answer = final_answer("é" * MAX_ANSWER_BYTES)
    assert answer.endswith(f"\n[cut: the first {MAX_ANSWER_BYTES} of {2 * MAX_ANSWER_BYTES} bytes]")
    assert answer.startswith("é" * (MAX_ANSWER_BYTES // 2) + "\n")


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("42", "42"),
        ("-3", "-3"),
        ("−3", "-3"),
        ("-$5", "-5"),
        ("$-5", "-5"),
        ("1,234.50", "1234.5"),
        (r"\$18.00", "18"),
        ("14 €", "14"),
        ("14 EUR", "14"),
        (r"60\degree", "60"),
        (r"5\text{ cm}^2", "5"),
        ("3/4", "0.75"),
        (r"\frac{1}{3}", "1/3"),
        (r"-\dfrac{1}{2}", "-0.5"),
        (r"\frac12", "0.5"),
        (r"2\frac{1}{2}", "2.5"),
        ("1 1/2", "1.5"),
        ("20%", "20%"),
        (r"20\%", "20%"),
        ("12 apples", "12"),
        (r"12 \text{ apples}", "12"),
        ("25 cm^2", "25"),
        (r"90^\circ", "90"),
        ("x = 5", "5"),
        ("$5$", "5"),
        ("3 m", "3"),
        ("5kg", "5"),
        ("25 m²", "25"),
        ("$5 a day", "5"),
        ("9 sq ft", "9"),
        ("9 square feet", "9"),
        ("60 miles per hour", "60"),
        ("60 km/h", "60"),
        ("60 miles/hour", "60"),
        (r"60 \text{ miles}/\text{hour}", "60"),
        (r"\$5/hour", "5"),
        ("12 words/minute", "12"),
        ("2 dollars each", "2"),
        ("3 eggs a day", "3"),
        ("5th", "5"),
        ("7 PM", "7"),
        ("25°C", "25"),
        ("12 people", "12"),
        ("3 boxes", "3"),
    ],
)
def test_a_number_is_read_in_every_common_notation(text: str, number: str) -> None:
    assert str(parse_number(text)) == number


@pytest.mark.parametrize(
    ("text", "number"),
    [
        (r"3\text{ million}", "3000000"),
        ("2.5 thousand", "2500"),
        ("1.5 Billion dollars", "1500000000"),
        ("-2 trillion", "-2000000000000"),
        ("$70k", "70000"),
        ("€70K", "70000"),
        ("½", "0.5"),
        ("2½", "2.5"),
        ("-1,000 ¾ cups", "-1000.75"),
    ],
)
def test_scale_words_and_vulgar_fractions_set_a_number_s_size(text: str, number: str) -> None:
    assert str(parse_number(text)) == number


@pytest.mark.parametrize(
    "text",
    [
        "5x", "5 x", "5xy", "5ab", "5n^2", "5x²", "3π", "3 πr", "3i", "2e", "5 apples times x",
        "5²", "½½", "½3", "70k", "70K", "$5M", "$5 b", "5 hundred", "2 thirds", "2 and a half",
        "5 hours and thirty minutes", "3 thousand million", "5 crore", "5万", "2 dozen eggs",
        "2 dozens", "5 quadrillion", "5 quadrillions", "3 pi", "5abc", "5 or more apples",
        "$5 mil", "$5m", "$5 mm", "4 billionths", "4 fifths", "3 pairs", "3 halves", "3 fives",
        "6 times", "5 plus", "5 minus", "5 less", "5 more", "5 squared", "5 sin", "5 a", "5 per",
        "5 half", "5apples", "5 Apples", "5 red apples", "6 miles in two hours", "5 kΩ",
        "5/x", "5/m", "5/hour", "5 km/x", "5 km/2", "5 km/", "$5/x", "5 a/b",
        "21 98/2", r"6\frac{64}{1}", "1 2/2", "1.5 1/2",
    ],
)  # fmt: skip
def test_a_text_with_more_than_a_number_and_its_unit_is_not_a_number(text: str) -> None:
    assert parse_number(text) is None


@pytest.mark.parametrize(
    "text",
    ["", "apples", "5 apples and 3 pears", "1,23", "3 4", "5x - y", "1/0", "2^5", "1.2.3", "٣"],
)
def test_a_text_that_is_not_a_single_number_is_not_a_number(text: str) -> None:
    assert parse_number(text) is None


@given(st.integers(), st.booleans())
def test_every_integer_survives_commas_and_currency(value: int, currency: bool) -> None:
    sign = "-" if value < 0 else ""
    text = f"{sign}{'$' if currency else ''}{abs(value):,}"
    parsed = parse_number(text)
    assert parsed is not None
    assert parsed.value == Fraction(value)


@pytest.mark.parametrize(
    "text",
    [
        r"\boxed{" * 100_000,
        "{" * 500_000,
        r"\boxed{1}" * 100_000,
        "$" * 500_000,
        r"\$ " * 200_000,
        r"\text{" * 100_000,
        "1" * 500_000,
        "a " * 300_000,
        " " * 300_000,
        "\n" * 300_000 + "42",
        "5 ^" + " " * 300_000,
        "5 " + "km/" * 100_000,
        "5 " + "m / " * 100_000,
    ],
    ids=lambda text: repr(text[:8]),
)
def test_hostile_text_is_read_in_linear_time(text: str) -> None:
    started = time.process_time()
    last_boxed(text)
    final_answer(text)
    parse_number(text)
    assert time.process_time() - started < 2.0


BLANKS = [chr(code) for code in range(sys.maxunicode + 1) if chr(code).isspace()]


@pytest.mark.parametrize("blank", BLANKS, ids=lambda blank: f"U+{ord(blank):04X}")
def test_any_run_of_whitespace_becomes_one_space(blank: str) -> None:
    assert strip_latex(f"{blank}two{blank * 3}words{blank}.{blank}") == "two words"


@given(
    st.lists(
        st.sampled_from([*BLANKS, *(r"\ ", r"\,", "~", r"\(", r"\)", r"\text{", "}"), "a", "7"]),
        max_size=60,
    )
)
def test_a_plain_answer_is_one_line_of_words_with_single_spaces(parts: list[str]) -> None:
    answer = strip_latex("".join(parts))
    assert answer == " ".join(answer.split())
