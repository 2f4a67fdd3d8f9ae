"""The checkers, case by case and under hostile text."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from fractions import Fraction

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopline.bench.checkers import CHECKERS, Scorer, delegate, lm_eval, numeric
from loopline.bench.checkers.numbers import MAX_DIGITS, clean, find_numbers
from loopline.workers.judging import math_verify_child
from loopline.workers.judging.math_verify import MathVerifier
from tests.bench.checker_cases import GROUPS

LETTERS = "nsfmd"
NEVER_ENDS = "\\boxed{9^{9^{9^{9}}}}"
CASES = [
    pytest.param(*case, id=f"{group}-{number}")
    for group, cases in GROUPS.items()
    for number, case in enumerate(cases, start=1)
]


@pytest.fixture(scope="module")
def scorer() -> Iterator[Scorer]:
    with Scorer() as opened:
        yield opened


def test_there_are_at_least_300_different_cases() -> None:
    """The table is the specification; it must not shrink unnoticed."""
    assert len({(prediction, gold) for _, cases in GROUPS.items() for prediction, gold, _ in cases})
    assert len({case[:2] for cases in GROUPS.values() for case in cases}) >= 300


@pytest.mark.parametrize(("prediction", "gold", "expected"), CASES)
def test_each_checker_agrees_with_the_table(
    scorer: Scorer, prediction: str, gold: str, expected: str
) -> None:
    """Five verdicts per case, derived from the rule of each checker."""
    verdicts = scorer.score(prediction, gold).verdicts.as_dict()
    outcome = "".join(
        letter if verdicts[name] else "-" for letter, name in zip(LETTERS, CHECKERS, strict=True)
    )
    assert outcome == expected


def test_a_missing_prediction_is_wrong_for_every_checker(scorer: Scorer) -> None:
    """A run without an answer has the prediction None."""
    score = scorer.score(None, "18")
    assert not any(score.verdicts.as_dict().values())
    assert score.where == "none"


def test_a_gold_answer_in_words_is_read_in_full_and_not_by_its_last_number(scorer: Scorer) -> None:
    """Unsolvable golds are refused (see test_answer_cases); counting them as failed would be a
    lie."""
    assert scorer.score("12", "a dozen").verdicts.numeric
    assert not scorer.score("2", "x^2").verdicts.numeric


def test_the_phrase_rule_of_delegates_scripts_differs_only_after_answer_is() -> None:
    """Its scripts look for "answer is N" before they take the last digits."""
    assert delegate.check_with_phrase("The answer is 18.00", "18")
    assert not delegate.check("The answer is 18.00", "18")
    assert not delegate.check_with_phrase("The answer is 70,000", "70000")
    assert delegate.check_with_phrase("so 18", "18")


def test_lm_eval_compares_text_and_not_numbers() -> None:
    """18.0 and 18 are different texts, even if their values are equal."""
    assert not lm_eval.flexible("18.0", "18")
    assert lm_eval.flexible("18", "She has 18.\n#### 18")


@given(st.text(max_size=400))
def test_the_pure_checkers_never_raise_on_any_text(text: str) -> None:
    """Model output is hostile: a checker returns a verdict and never fails."""
    numeric.check(text, "18")
    lm_eval.strict(text, "18")
    lm_eval.flexible(text, "18")
    delegate.check_with_phrase(text, "18")


@given(
    st.lists(
        st.sampled_from(
            [
                "\\boxed{",
                "}",
                "{",
                "18",
                "-",
                "$",
                "\\frac",
                ",",
                ".",
                " ",
                "\n",
                "/",
                "^",
                "%",
                "=",
            ]
        ),
        max_size=40,
    )
)
def test_the_numeric_checker_never_raises_on_any_markup(parts: list[str]) -> None:
    """The same for the most dangerous input: pieces of LaTeX in any order."""
    numeric.check("".join(parts), "18")


@given(st.integers(min_value=-(10**15), max_value=10**15))
def test_an_integer_is_found_in_any_notation(value: int) -> None:
    """Plain, with commas, in a box, with zero cents, as a price."""
    for text in (
        str(value),
        f"{value:,}",
        f"\\boxed{{{value}}}",
        f"The answer is {value:,}.00",
        f"#### {value}",
        f"\\boxed{{{value:,}}} after 3 days",
        f"\\[\\boxed{{{value} \\text{{ apples}}}}\\]",
    ):
        assert numeric.check(text, str(value)), text
        assert not numeric.check(text, str(value + 1)), text


@given(st.integers(-999, 999), st.integers(1, 999))
def test_a_fraction_equals_itself_in_every_notation(up: int, down: int) -> None:
    """Exact, even where a float would round."""
    gold = str(Fraction(up, down))
    for text in (f"{up}/{down}", f"\\boxed{{\\frac{{{up}}}{{{down}}}}}", f"\\boxed{{{up}/{down}}}"):
        assert numeric.check(text, gold), text


@given(st.decimals(min_value=-10_000, max_value=10_000, places=2))
def test_trailing_zeros_never_matter(value: object) -> None:
    """18.50 and 18.5 are one number."""
    assert numeric.check(f"{value}", f"{value}00")


@pytest.mark.parametrize(
    "text",
    [
        "\\boxed{" * 20_000,
        "boxed{?" * 20_000,
        "1," * 60_000,
        "1/" * 60_000,
        "9" * 150_000,
        "{" * 150_000,
        "\\text{" * 20_000,
        "-" * 150_000,
        "1 and " * 20_000,
        "\\frac" * 30_000,
        "12," * 30_000,
        "5^" + " " * 100_000,
    ],
    ids=lambda text: text[:8],
)
def test_the_cost_of_hostile_text_is_linear_in_its_length(text: str) -> None:
    """A quadratic pattern would need minutes for these."""
    began = time.process_time()
    numeric.check(text, "18")
    delegate.check(text, "18")
    lm_eval.flexible(text, "18")
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("1, 2, 3", [1, 2, 3]),
        ("1,2,3", [1, 2, 3]),
        ("10,20,30", [10, 20, 30]),
        ("10, 200, 300", [10, 200, 300]),
        ("1, 234", [1, 234]),
        ("5,1,234", [5, 1234]),
        ("1,234, 5,678", [1234, 5678]),
        ("3, 4, and 1,000", [3, 4, 1000]),
        ("$1,234, $5", [1234, 5]),
        ("1,234,", [1234]),
        ("1,2345", [1, 2345]),
        ("1,23,456", [123456]),
    ],
)
def test_a_comma_inside_a_number_groups_digits_and_any_other_comma_separates(
    text: str, values: list[int]
) -> None:
    """A group has three digits after the comma, or Indian pairs before the last three."""
    assert [number.value for number in find_numbers(clean(text))] == values


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=80))
def test_a_list_with_spaces_after_its_commas_is_read_number_by_number(values: list[int]) -> None:
    """With any grouping of the numbers, and any count of them."""
    for text in (", ".join(map(str, values)), ", ".join(f"{value:,}" for value in values)):
        assert [number.value for number in find_numbers(clean(text))] == values


def test_an_absurdly_long_number_has_no_value() -> None:
    """Python itself refuses to parse it; it is not an answer."""
    (number,) = find_numbers(clean("9" * (MAX_DIGITS + 1)))
    assert number.value is None


def test_only_a_percentage_has_two_readings() -> None:
    """50 % answers both "how many percent" and "which share"."""
    percent, plain = numeric.gold_number("50%"), numeric.gold_number("50")
    assert percent is not None
    assert plain is not None
    assert percent.readings == {Fraction(50), Fraction(1, 2)}
    assert plain.readings == {Fraction(50)}


def test_an_abandoned_expression_is_not_tried_again() -> None:
    """Each attempt costs the full time limit, and a model repeats itself."""
    with MathVerifier(patience=1) as verifier:
        assert [verifier.check(NEVER_ENDS, "9") for _ in range(3)] == [False] * 3
        assert verifier.abandoned == 1
        assert not verifier.check(NEVER_ENDS, "8")
        assert verifier.abandoned == 2


def test_a_right_answer_is_accepted_even_if_the_child_is_killed_while_judging() -> None:
    before = psutil.Process().children()
    with MathVerifier() as verifier:
        assert verifier.check("\\boxed{18}", "18")
        (child,) = (
            process
            for process in psutil.Process().children()
            if process not in before and math_verify_child.__name__ in process.cmdline()
        )
        child.suspend()
        killing = threading.Timer(0.2, child.kill)
        killing.start()
        assert verifier.check("\\boxed{19}", "19")
        killing.join()
        assert verifier.abandoned == 0


def test_an_endless_expression_is_abandoned_and_the_next_one_is_judged() -> None:
    """SymPy would work on this for hours; the child is killed and another replaces it."""
    with MathVerifier(patience=5) as verifier:
        assert verifier.check("\\boxed{18}", "18")
        assert not verifier.check(NEVER_ENDS, "9")
        assert verifier.abandoned == 1
        assert verifier.check("\\boxed{18}", "18")
