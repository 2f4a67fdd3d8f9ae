"""Answers from public reports about Math-Verify, MATH and GSM8K, with their correct verdicts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from loopline.bench.checkers import Scorer


@pytest.fixture(scope="module")
def scorer() -> Iterator[Scorer]:
    with Scorer() as opened:
        yield opened


def boxed(answer: str) -> str:
    return f"\\boxed{{{answer}}}"


RIGHT = [
    ("So she has 3 x 4 = 12 eggs.", "12"),
    ("2 x $5 = $10", "10"),
    ("3 x 4 x 2 = 24 dogs", "24"),
    ("Final answer: 1,5", "1.5"),
    ("Ответ: 12,5", "12.5"),
    ("12,5", "12.5"),
    (boxed("11,\\! 111,\\! 111,\\! 100"), "11111111100"),
    (boxed("11111111100"), "11,\\! 111,\\! 111,\\! 100"),
    (boxed("5\\sqrt{2}\\text{ inches}"), "5\\sqrt{2}"),
    (boxed("5\\sqrt{2}"), "5\\sqrt{2}\\text{ inches}"),
    (boxed("\\sqrt{50}\\text{ inches}"), "5\\sqrt{2}\\text{ in}"),
    (
        boxed("\\begin{pmatrix}-2\\\\4\\end{pmatrix}"),
        "\\begin{pmatrix}-2\\\\4\\\\\\end{pmatrix}",
    ),
    (boxed("1 - \\frac{1}{\\mathrm{e}}"), "$1 - \\frac{1}{e}$"),
    (boxed("3 \\text{ m}^2"), "3 m^2"),
    (boxed("10 \\text{ m/s}"), "36 km/h"),
    (boxed("60 \\text{ miles per hour}"), "60 mph"),
    (boxed("36 \\text{ km per hour}"), "10 m/s"),
    (boxed("100 \\text{ degrees}"), "100°C"),
    (boxed("20^\\circ\\text{C}"), "20 degrees Celsius"),
]
WRONG = [
    ("12,5", "5"),
    (boxed("3,4"), "3.4"),
    (boxed("5\\sqrt{2}\\text{ inches}"), "5\\sqrt{2}\\text{ feet}"),
    (boxed("1 + \\frac{1}{\\mathrm{e}}"), "$1 - \\frac{1}{\\mathrm{e}}$"),
    (boxed("\\frac{1}{2006!}"), "\\frac{1}{2004!}"),
    (boxed("\\frac{1}{2^{98}}"), "\\frac{1}{2^{99}}"),
    (boxed("1:4:9:\\ldots"), "$1:2:3:\\ldots$"),
    (boxed("3 \\text{ m}"), "3 m^2"),
    (boxed("3 \\text{ m}^3"), "3 m^2"),
    (boxed("10 \\text{ m/s}"), "10 m/s^2"),
    (boxed("60 \\text{ mph}"), "60 km/h"),
    (boxed("25\\,\\mathrm{N}"), "25 J"),
    (boxed("100^\\circ\\text{F}"), "100°C"),
]


@pytest.mark.parametrize(("prediction", "gold"), RIGHT)
def test_an_answer_in_its_author_s_notation_is_right(
    scorer: Scorer, prediction: str, gold: str
) -> None:
    assert scorer.score(prediction, gold).verdicts.numeric


@pytest.mark.parametrize(("prediction", "gold"), WRONG)
def test_another_number_or_another_unit_is_wrong(
    scorer: Scorer, prediction: str, gold: str
) -> None:
    assert not scorer.score(prediction, gold).verdicts.numeric
