"""Answers from public reports about Math-Verify, MATH and GSM8K, with their correct verdicts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from loopline.bench.checkers import Scorer
from loopline.workers.judging.expressions import same
from loopline.workers.judging.math_verify import MathVerifier


@pytest.fixture(scope="module")
def scorer() -> Iterator[Scorer]:
    with Scorer() as opened:
        yield opened


def boxed(answer: str) -> str:
    return f"\\boxed{{{answer}}}"


RIGHT = [
    (boxed("a=1,b=2"), "a = 1, b = 2"),
    (boxed("b=2,\\ a=1"), "$a=1, b=2$"),
    (boxed("x=1, x=2"), "x=2 \\text{ or } x=1"),
    (boxed("+42"), "42"),
    (boxed("+\\frac12"), "1/2"),
    (boxed("10⁻³"), "0.001"),
    (boxed("3x²−2x"), "3x^2-2x"),
    (boxed("x₁+x₂"), "x_1+x_2"),
    (boxed("aⁿ"), "a^n"),
    (boxed("\\operatorname{arctan} 2"), "\\arctan 2"),
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
    ("The answer is $42$.", "42 cm"),
    ("The answer is $10\\text{ cm}$.", "10 cm"),
    (boxed("10 \\text{ square centimeters}"), "$10\\text{ cm}^2$"),
    (boxed("90\\text{ degrees}"), "$90^\\circ$"),
    (boxed("\\$5"), "$5$"),
    (boxed("1 : 2"), "1:2"),
    (boxed("\\color{red}{42}"), "42"),
    (boxed("\\underline{42}"), "42"),
    (boxed("2x^2-2"), "2(x^2-1)"),
    (boxed("(x+1)(x-1)"), "x^2-1"),
    (boxed("\\frac{ab}{2}"), "\\frac{1}{2}ab"),
    (boxed("4210_{5}"), "4210_5"),
    (boxed("\\dfrac{9\\pi}{2}"), "\\frac92\\pi"),
    (boxed("\\frac{e-1}{e}"), "1-\\frac1e"),
    (boxed("2^{\\frac13}"), "\\sqrt[3]{2}"),
    (boxed("36\\pi \\text{ cubic inches}"), "36\\pi"),
    (boxed("\\mathbf{5\\sqrt2}"), "5\\sqrt{2}"),
    (boxed("(x,y)=(1,2)"), "(1,2)"),
    (boxed("1,2,3"), "\\{3,2,1\\}"),
    (boxed("x<-3 \\text{ or } x>3"), "(-\\infty,-3)\\cup(3,\\infty)"),
    (boxed("\\mathbb{R}"), "(-\\infty,\\infty)"),
    (boxed("k>\\frac{1}{2}"), "k>0.5"),
    (
        boxed("\\begin{bmatrix} 1 & 2 \\\\ 3 & 4 \\end{bmatrix}"),
        "\\begin{pmatrix}1&2\\\\3&4\\end{pmatrix}",
    ),
    (
        boxed("\\left(\\begin{array}{c}-7\\\\16\\end{array}\\right)"),
        "\\begin{pmatrix} -7 \\\\ 16 \\end{pmatrix}",
    ),
    (boxed("\\log_2 3"), "\\log_{2}3"),
]
WRONG = [
    (boxed("b=1, a=2"), "a=1, b=2"),
    (boxed("k=2; m=5"), "m=2; k=5"),
    (boxed("a=1, b=2"), "2"),
    (boxed("+42"), "-42"),
    (boxed("x²"), "x2"),
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
    (boxed("\\frac{1}{12}\\pi"), "\\frac{11}{2}\\pi"),
    (boxed("\\sqrt{x}+1"), "\\sqrt{x+1}"),
    (boxed("e^{2x}"), "e^2x"),
    (boxed("\\binom{1}{23}"), "\\binom{12}{3}"),
    (boxed("\\frac{x}{2}+1"), "\\frac{x}{2+1}"),
    (boxed("1"), "x^2-1"),
    (boxed("x^2-1"), "1"),
    (boxed("1"), "p-1"),
    (boxed("5"), "5xy"),
    (boxed("2ab"), "2"),
    (boxed("2"), "a_{2}"),
    (boxed("42_8"), "42"),
    (boxed("4210_7"), "4210_5"),
    (boxed("\\text{not } 42"), "42"),
    (boxed("42 \\text{ is wrong}"), "42"),
    ("The answer is not 42.", "42"),
    ("It cannot be 42.", "42"),
    ("It is 41 or 42.", "42"),
    (boxed("x>1 \\text{ or } x<5"), "(1,5)"),
    (boxed("1,2,4"), "\\{1,2,3\\}"),
]


@pytest.mark.parametrize(("prediction", "gold"), RIGHT)
def test_an_answer_in_its_author_s_notation_is_right(
    scorer: Scorer, prediction: str, gold: str
) -> None:
    assert scorer.score(prediction, gold).verdicts.numeric


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        ("\\frac{1}{12}", "\\frac{11}{2}"),
        ("\\frac{12}{3}", "\\frac{1}{23}"),
        ("\\sqrt{23}", "\\sqrt{2}3"),
        ("2^{10}", "2^{1}0"),
        ("31 5", "315"),
    ],
)
def test_braces_group_what_they_enclose(answer: str, gold: str) -> None:
    """The comparison that rewards use."""
    with MathVerifier() as verifier:
        assert not same(answer, gold, verifier)
        assert same(gold, gold, verifier)


@pytest.mark.parametrize(("prediction", "gold"), WRONG)
def test_another_number_or_another_unit_is_wrong(
    scorer: Scorer, prediction: str, gold: str
) -> None:
    assert not scorer.score(prediction, gold).verdicts.numeric


@pytest.mark.parametrize(
    ("answer", "gold"),
    [("3×10⁸", "300000000"), ("10⁻³", "0.001"), ("x²y", "x^2 y"), ("5 m²", "5 m^2")],
)
def test_raised_characters_are_exponents(answer: str, gold: str) -> None:
    with MathVerifier() as verifier:
        assert same(answer, gold, verifier)
