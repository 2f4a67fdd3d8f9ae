"""Formulas in other notations than LaTeX's usual one: what rewards accept as the same, and what
not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from loopline.workers.judging.expressions import same
from loopline.workers.judging.math_verify import MathVerifier


@pytest.fixture(scope="module", name="verifier")
def started_verifier() -> Iterator[MathVerifier]:
    with MathVerifier() as verifier:
        yield verifier


PRINTED = [
    ("sqrt(3)/2", r"\frac{\sqrt3}{2}"),
    ("-sqrt(2)/2 + 1/2", r"\frac{1-\sqrt2}{2}"),
    ("sqrt(sqrt(2) + 2)", r"\sqrt{2+\sqrt2}"),
    ("2sqrt3", r"\sqrt{12}"),
    (r"4\sqrt(2)", r"4\sqrt{2}"),
    ("√(2+√3)", r"\sqrt{2+\sqrt3}"),
    ("√12", r"2\sqrt3"),
    ("-2*pi", r"-2\pi"),
    ("pi**2/6", r"\frac{\pi^2}{6}"),
    ("x**2 + 1", "x^2+1"),
    ("x^(1/3)", r"\sqrt[3]{x}"),
    ("2**(1/3)", r"2^{\frac13}"),
    ("1 - exp(-1)", r"1-\frac1e"),
    ("cos(pi/7)", r"\cos\frac{\pi}{7}"),
    ("atan(2)", r"\arctan 2"),
    ("[sqrt(2)/2, 1)", r"[\frac{\sqrt2}{2}, 1)"),
]
WRITTEN = [
    (r"\cos 70^\circ", r"\sin 20^\circ"),
    (r"\tan(15^{\circ})", r"2-\sqrt3"),
    (r"60\degree", "60"),
    (r"x^{\prime}", "x'"),
    (r"\frac\pi2", r"\frac{\pi}{2}"),
    (r"\dbinom{2n}{n}", r"\binom{2n}{n}"),
    (r"(0,1)\bigcup(1,2)", r"(0,1)\cup(1,2)"),
    (r"\lg 2", r"\log_{10} 2"),
]
SETS = [
    (r"\{x \mid x > 3\}", r"(3,\infty)"),
    (r"\left\{x \in \mathbb{R} : x \le 3\right\}", r"(-\infty,3]"),
    (r"\{x | x<1 \text{ or } x>2\}", r"(-\infty,1)\cup(2,\infty)"),
    (r"x \in \{1, 2\}", "2, 1"),
    (r"S = \{1,2,3\}", r"\{3,1,2\}"),
    (r"(x,y) \in \{(1,2),(2,1)\}", "(2,1), (1,2)"),
]
UNITS = [
    (r"12\text{ square units}", "12"),
    (r"12\pi \text{ cubic units}", r"12\pi"),
    (r"12\pi\text{ units}^2", r"12\pi"),
    (r"5\text{ cm}^2", "5"),
    (r"5\text{ sec}", "5"),
    (r"20\,\mathrm{N}", "20"),
    (r"20 \Omega", "20"),
    (r"1.5\times 10^{8}\text{ m/s}", r"1.5\times10^8"),
    (r"5\,\text{€}", "5"),
]
DIFFERENT = [
    (r"\pi r^2", r"\pi R^2"),
    ("1", r"\frac{R}{r}"),
    (r"2\theta", r"2\Theta"),
    ("y' = 2x", "y = 2x"),
    (r"2\sqrt{x'}", r"2\sqrt{x}"),
    (r"\sin 30", r"\sin 30^\circ"),
    (r"\{x \mid x > 3\}", r"(2,\infty)"),
    (r"x \in \{1, 2\}", "1"),
    (r"x \in \{1, 2\}", "(1,2)"),
    ("n = 7 = \\{1, 2\\}", "1, 2"),
    ("sqrt(9)", "3"),
    ("2**3", "8"),
    ("**5", "5"),
    ("20N", "20"),
    (r"4\cdot5\text{ J}", "20"),
    ("20 J or 30 J", "20"),
    ("20 x", "20"),
]


@pytest.mark.parametrize(("answer", "gold"), [*PRINTED, *WRITTEN])
def test_a_formula_is_the_same_in_each_of_its_notations(
    answer: str, gold: str, verifier: MathVerifier
) -> None:
    assert same(answer, gold, verifier)
    assert same(gold, answer, verifier)


@pytest.mark.parametrize(("answer", "gold"), SETS)
def test_a_set_may_be_stated_by_its_members_or_by_a_condition(
    answer: str, gold: str, verifier: MathVerifier
) -> None:
    assert same(answer, gold, verifier)
    assert same(gold, answer, verifier)


@pytest.mark.parametrize(("answer", "gold"), UNITS)
def test_an_answer_may_have_a_unit_that_the_gold_answer_leaves_out(
    answer: str, gold: str, verifier: MathVerifier
) -> None:
    assert same(answer, gold, verifier)


@pytest.mark.parametrize(("answer", "gold"), DIFFERENT)
def test_similar_formulas_differ(answer: str, gold: str, verifier: MathVerifier) -> None:
    assert not same(answer, gold, verifier)


@pytest.mark.parametrize("text", ["sqrt(" * 400, "^(" * 900, "√" * 1_900, "x**" * 600, "pi " * 600])
def test_hostile_formulas_are_read_at_once(text: str, verifier: MathVerifier) -> None:
    assert not same(text, r"\sqrt{2}", verifier)
