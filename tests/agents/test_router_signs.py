"""Features that a score reads in a plain text."""

from __future__ import annotations

import json
import lzma
import os
from fractions import Fraction
from pathlib import Path

import pytest

from loopline.agents.router.features import (
    MAX_EVIDENCE_CHARS,
    AnswerEvidence,
    clip,
    hashed_words,
    numeric_features,
)
from loopline.agents.router.numbers import calculations, contradicted_marks
from loopline.agents.router.symbols import symbolic


@pytest.mark.parametrize(
    ("text", "left", "result", "holds"),
    [
        ("5 plus 3 is 8", "5 + 3", 8, True),
        ("She has 12 eggs minus 4 eggs, so 12 minus 4 leaves 9.", "12 - 4", 9, False),
        ("3 boxes * 4 pens = 12 pens", "3 * 4", 12, True),
        ("10 miles/hour * 2 hours = 25 miles", "10 * 2", 25, False),
        ("20% of 50 is 10", "20% * 50", 10, True),
        ("20 percent of 50 students = 12", "20% * 50", 12, False),
        ("half of 30 is 15", "1/2 * 30", 15, True),
        ("3/4 of 80 equals 60", "3/4 * 80", 60, True),
        ("6 times 7 equals 42", "6 * 7", 42, True),
        ("100 divided by 8 gives us 12.5", "100 / 8", Fraction(25, 2), True),
    ],
)
def test_calculations_in_words_are_read_as_equations(
    text: str, left: str, result: int | Fraction, holds: bool
) -> None:
    (step,), marked = calculations(text)
    assert (step.left, step.result, step.holds, marked) == (left, result, holds, 0)


@pytest.mark.parametrize(
    "text",
    [
        "Tom has 3 boxes and 4 pens.", "x + 3 = 8", "There are 5 more than 3.",
        "2 hours = 120 minutes",
        "It is 5 to 3.", "She pays $4 for 2 of them.",
    ],
)  # fmt: skip
def test_words_without_a_calculation_yield_no_equation(text: str) -> None:
    assert calculations(text) == ([], 0)


@pytest.mark.skipif("LOOPLINE_DATA" not in os.environ, reason="LOOPLINE_DATA is not set")
def test_right_solutions_also_hold_symbolically() -> None:
    path = Path(os.environ["LOOPLINE_DATA"]) / "math" / "gsm8k" / "test.jsonl.xz"
    with lzma.open(path, "rt", encoding="utf-8") as lines:
        texts = [json.loads(line)["answer"] for line in lines]
    plain = [text.replace("<<", "\n").replace(">>", "\n") for text in texts]
    steps = [step for text in plain for step in calculations(text)[0]]
    assert len(steps) > 3_000
    assert sum(not step.holds for step in steps) / len(steps) < 0.01


def test_a_mark_followed_by_a_different_number_contradicts_itself() -> None:
    assert contradicted_marks("9 * 2 = $<<9*2=18>>18") == 0
    assert contradicted_marks("9 * 2 = <<9*2=18>>16. 3,000 = <<3*1000=3000>>3,000") == 1


def sign(name: str, question: str, text: str) -> float:
    return numeric_features(AnswerEvidence(question, text))[f"sign.{name}"]


QUESTION = "Ann has 12 apples and eats 4. She sells the rest for $3 each. How many dollars has she?"


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("cut_off", "12 - 4 = 8. 8 * 3 = 24. #### 24", "12 - 4 = 8. Then she sells them and has"),
        ("stated_answers", "#### 24", "The answer is 8.\n#### 24"),
        ("left_without_operator", "12 - 4 = 8\n8 * 3 = 24", "12 + 4 = 16"),
        ("each_without_operator", "8 * 3 = 24", "12 - 4 = 8"),
        ("left_out_numbers", "12 - 4 = 8\n8 * 3 = 24\n#### 24", "12 - 4 = 8\n#### 8"),
        ("stray_steps", "12 - 4 = 8\n8 * 3 = 24\n#### 24", "12 * 4 = 48\n8 * 3 = 24\n#### 24"),
        ("negative", "#### 24", "#### -24"),
        ("refuses", "#### 24", "There is not enough information."),
        ("goes_on", "#### 24", "#### 24\n\nQuestion: What is 2 + 2?\n#### 4"),
        ("other_script", "#### 24", "答案是 24"),
        ("asked_noun_unsaid", "She has 24 dollars.", "24"),
    ],
)
def test_a_sign_of_a_wrong_answer_is_higher_in_a_text_that_shows_it(
    name: str, good: str, bad: str
) -> None:
    assert sign(name, QUESTION, good) < sign(name, QUESTION, bad)


def test_unconverted_units_are_counted() -> None:
    question = "Ben reads 20 minutes each day. How many hours does he read in 3 weeks?"
    assert sign("units_unconverted", question, "20 * 3 = 60") > sign(
        "units_unconverted", question, "20 * 7 * 3 = 420, 420 / 60 = 7"
    )


def test_only_the_end_of_a_long_text_is_read() -> None:
    text = "and so on, " * 10_000 + "\n#### 42"
    assert len(clip(text)) == MAX_EVIDENCE_CHARS
    assert clip(clip(text)) == clip(text)
    whole, clipped = AnswerEvidence("?", text), AnswerEvidence("?", clip(text))
    assert numeric_features(whole) == numeric_features(clipped)
    assert hashed_words(whole) == hashed_words(clipped)
    assert numeric_features(whole)["answer.in_mark"] == 1


def test_text_that_is_not_a_calculation_stays_unchanged() -> None:
    text = "Ann buys 3 pens and 4 books. She pays 5 dollars; 2 hours are 120 minutes."
    assert symbolic(text) == text
