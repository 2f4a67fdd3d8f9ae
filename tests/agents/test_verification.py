"""The ladder accepts right answers, stops wrong ones, and gives the reason."""

from __future__ import annotations

import json
import lzma
import os
import re
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loopline.agents.equations import equations, first_wrong
from loopline.agents.payloads import ExpectedType
from loopline.agents.protocols import Host
from loopline.agents.typed_answers import boxed_answer
from loopline.agents.verification import LADDER, Evidence, Verdict, check_rungs
from tests.agents.conversations import ScriptedHost, says


def evidence(*texts: str, expected: ExpectedType = "integer") -> Evidence:
    return Evidence("What is it?", expected, tuple(says(text) for text in texts))


@pytest.mark.parametrize(
    "text",
    [
        "3 * 4 = 12",
        r"9 \times 2 = 18",
        r"$16 - 3 - 4 = 9$ eggs",
        r"\[ \frac{1}{2} \times 60 = 30 \]",
        r"so $\$2 \times 9 = \$18$ in all",
        "Total: 5 + 3 = 8.",
        "He has 5 + 3 = 8, so he is happy.",
        "for 3, 4 + 5 = 9",
        "1,000 + 234 = 1,234",
        "10 / 3 = 3.33",
        "2 / 3 = 0.667",
        "5 + 3 = 8 + 2 = 10",
        "20 = 4 * 5",
        "50 * 20% = 10",
        "x = 12 / 4 = 3",
        "**3 + 4 = 7**",
        r"7 \cdot 8 = 56\text{ days}",
        r"3 + 4 = \boxed{7}",
        "1. 2 + 2 = 4",
        "-3 + 5 = 2",
        "2^3 = 8",
        "6 ÷ 4 = 1.5",
        "so that's .50*5 = $2.50 a week",
        "she lost $.05 because .3 - .25 = .05",
        "a $1000 x 20/100 = $200 down payment",
        "12 / 48 * 100 = 25%",
        "9 / 27 * 100% = 33.333%",
        "- 12 * 4 = 48",
        "– 5 × 3 = 15",
        "* 12 * 4 = 48",
        "• 12 * 4 = 48",
        "- -5 + 3 = -2",
        "- 5 + 3 = -2",
        "- 12 = 3 * 4",
        "-5 + 3 = -2",
        "First of all.\n  - 5 + 3 = 8",
        "Step 1 - 5 + 3 = 8",
        "(1) - 5 + 3 = 8",
        "1. - 5 + 3 = 8",
        "16 / 4 = 4 remainder 0",
    ],
)
def test_a_true_equation_is_found_and_accepted(text: str) -> None:
    matches = equations(text)
    assert matches, text
    assert all(equation.holds for equation in matches), [str(match) for match in matches]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("3 * 4 = 13", "3 * 4 = 13 is wrong: the left side is 12"),
        (r"We get $9 \times 2 = 16$ dollars.", "9 * 2 = 16 is wrong: the left side is 18"),
        ("10 / 3 = 3", "10 / 3 = 3 is wrong: the left side is 10/3"),
        ("10 / 3 = 3.34", "10 / 3 = 3.34 is wrong: the left side is 10/3"),
        ("1 + 1 = 2. Then 2 + 2 = 5.", "2 + 2 = 5 is wrong: the left side is 4"),
        ("5 + 3 = 8 + 2 = 11", "8 + 2 = 11 is wrong: the left side is 10"),
        ("- 12 * 4 = 47", "12 * 4 = 47 is wrong: the left side is 48"),
        ("* 12 * 4 = 47", "12 * 4 = 47 is wrong: the left side is 48"),
        ("-5 + 3 = 8", "-5 + 3 = 8 is wrong: the left side is -2"),
        ("20 - 5 + 3 = 19", "20 - 5 + 3 = 19 is wrong: the left side is 18"),
        ("10 / 3 = 3, so he has 3", "10 / 3 = 3 is wrong: the left side is 10/3"),
        ("10 / 3 = 3 so he has 3", "10 / 3 = 3 is wrong: the left side is 10/3"),
        ("100 / 3 = 35 full boxes", "100 / 3 = 35 is wrong: the left side is 100/3"),
        ("3 * 4 = 13 apples", "3 * 4 = 13 is wrong: the left side is 12"),
    ],
)
def test_a_false_equation_is_reported_with_the_true_value(text: str, reason: str) -> None:
    assert first_wrong(text) == reason


@pytest.mark.parametrize(
    "text",
    [
        "x + 3 = 8",
        "so x - 5 = 3",
        "2x + 3 = 11",
        "12 eggs - 3 = 8",
        "f(2) + 3 = 9",
        "2 + 3 = 5x",
        "7 + 1 = 9 - x",
        "60 minutes x 3/4 = 45 minutes",
        "12 x 1 and 1/4 = 15",
        "it costs 10/3 = 3 and 1/3 dollars",
        "60 / 3/4 = 80",
        "Week 2 = 35 + 36",
        "at 6:00+48=6:48 PM",
        "60 minutes = 1 hour",
        "n = 5",
        "a >= 3 + 4",
        "3 + 4 != 8",
        "80 - 20% = 64",
        "(x + 3) * 2 = 9",
        "17 / 5 = 3 remainder 2",
        "17 / 5 = 3 R 2",
        "17 / 5 = 3 r2",
        "17 / 5 = 3, remainder 2",
        "17 / 5 = 3 (remainder 2)",
        "17 / 5 = 3 with a remainder of 2",
        "17 / 5 = 3 with 2 left over",
        "17 / 5 = 3, with 2 left over",
        r"17 \div 5 = 3 \text{ remainder } 2",
        "17 = 3 * 5 remainder 2",
        "100 / 3 = 33 full boxes",
        "100 / 3 = 34 boxes",
        r"\frac{100}{3} = 33 \text{ full boxes}",
        "10 / 3 = 3 (rounded down)",
        '<tool_call>\n{"name": "calculate", "arguments": {"expression": "1+1=3"}}\n</tool_call>',
        "",
        "===",
        "1 + = 2",
    ],
)
def test_ambiguous_text_is_not_an_equation(text: str) -> None:
    assert equations(text) == []


@pytest.mark.skipif("LOOPLINE_DATA" not in os.environ, reason="LOOPLINE_DATA is not set")
@pytest.mark.parametrize(
    ("split", "solutions", "slips"), [("train", 7_473, 33), ("test", 1_319, 3)]
)
def test_reference_solutions_almost_never_raise_an_alarm(
    split: str, solutions: int, slips: int
) -> None:
    """The authors made a few slips ("3/1=1"); any other alarm would cost an expert's call."""
    path = Path(os.environ["LOOPLINE_DATA"]) / "math" / "gsm8k" / f"{split}.jsonl.xz"
    with lzma.open(path, "rt", encoding="utf-8") as lines:
        answers = [re.sub(r"<<.*?>>", "", json.loads(line)["answer"]) for line in lines]
    assert len(answers) == solutions
    assert sum(1 for answer in answers if equations(answer)) > 0.8 * solutions
    assert sum(1 for answer in answers if first_wrong(answer)) <= slips


@given(st.text(alphabet="0123456789+-*/%=()., x\\$\n", max_size=300))
@settings(max_examples=300, deadline=None)
def test_any_text_can_be_searched_for_equations(text: str) -> None:
    for equation in equations(text):
        assert equation.left
        assert equation.right


@given(
    st.integers(0, 10**6),
    st.sampled_from(["+", "-", "*"]),
    st.integers(0, 10**6),
    st.integers(-3, 3),
)
def test_an_equation_holds_exactly_when_its_result_is_right(
    a: int, operator: str, b: int, error: int
) -> None:
    result = {"+": a + b, "-": a - b, "*": a * b}[operator]
    (equation,) = equations(f"So {a} {operator} {b} = {result + error} in all")
    assert equation.holds == (error == 0)


@pytest.mark.parametrize(
    "text", ["1" * 100_000, "1 = " * 25_000, "1 + " * 25_000 + "= 3", "{" * 100_000, "=" * 100_000]
)
def test_hostile_working_is_searched_in_bounded_time(text: str) -> None:
    started = time.process_time()
    first_wrong(text)
    assert time.process_time() - started < 1.0


@pytest.mark.parametrize(
    ("text", "expected", "answer"),
    [
        (r"\boxed{42}", "integer", "42"),
        (r"\boxed{42.00}", "integer", "42"),
        (r"\boxed{1,200 \text{ eggs}}", "integer", "1200"),
        (r"\boxed{20\%}", "integer", "20"),
        (r"\boxed{4.5}", "integer", None),
        (r"\boxed{\frac{1}{3}}", "number", "1/3"),
        (r"\boxed{20\%}", "number", "20%"),
        (r"\boxed{3\text{ million}}", "integer", "3000000"),
        (r"\boxed{5x}", "integer", None),
        (r"\boxed{x}", "number", None),
        (r"\boxed{Tuesday}", "text", "Tuesday"),
        (r"\boxed{}", "text", None),
        ("42", "integer", None),
    ],
)
def test_an_answer_must_have_the_requested_type(
    text: str, expected: ExpectedType, answer: str | None
) -> None:
    assert boxed_answer(text, expected) == answer


async def test_a_good_answer_passes_every_rung() -> None:
    verification = await check_rungs(evidence(r"3 * 4 = 12, so \boxed{12}"), ScriptedHost([]))
    assert verification.passed
    assert verification.answer == "12"
    assert [verdict.rung for verdict in verification.verdicts] == ["schema", "arithmetic"]


async def test_an_answer_without_a_box_fails_the_first_rung() -> None:
    verification = await check_rungs(evidence("It is 12."), ScriptedHost([]))
    assert not verification.passed
    assert verification.answer is None
    assert [verdict.rung for verdict in verification.verdicts] == ["schema"]
    assert verification.reason == r"schema: there is no \boxed{…}, expected: integer"


async def test_working_before_a_tool_call_is_also_checked() -> None:
    verification = await check_rungs(
        evidence("First 2 + 2 = 5.", r"Thus \boxed{5}"), ScriptedHost([])
    )
    assert verification.reason == "arithmetic: 2 + 2 = 5 is wrong: the left side is 4"
    assert verification.answer == "5"


async def test_a_call_that_is_never_closed_hides_only_its_own_turn() -> None:
    cut = '<tool_call>\n{"name": "calculate"'
    verification = await check_rungs(evidence(cut, r"So 2 + 2 = 5, \boxed{5}"), ScriptedHost([]))
    assert verification.reason == "arithmetic: 2 + 2 = 5 is wrong: the left side is 4"


async def test_a_custom_rung_can_be_added_and_may_ask_its_host() -> None:
    class AskAgain:
        name = "agreement"

        async def check(self, evidence: Evidence, host: Host) -> Verdict:
            (second,) = await host.complete([])
            agree = boxed_answer(second.text, evidence.expected_type) == "12"
            return Verdict(rung=self.name, passed=agree, reason="asked twice")

    rungs = (*LADDER, AskAgain())
    first = evidence(r"\boxed{12}")
    agreed = await check_rungs(first, ScriptedHost([says(r"\boxed{12}")]), rungs)
    denied = await check_rungs(first, ScriptedHost([says(r"\boxed{13}")]), rungs)
    assert agreed.passed
    assert denied.reason == "agreement: asked twice"
