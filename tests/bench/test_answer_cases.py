"""Answers as models write them and golds as data sets publish them, each with its correct verdict:
`cases/answers.jsonl` from public reports, and every gold of the data sets against itself."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from loopline.agents.environments.math_team import (
    MathProblem,
    MathQuestion,
    program_answer,
    reasoning_answer,
)
from loopline.bench.checkers import Scorer, numeric
from loopline.bench.datasets import Request, aime, olympiadbench
from loopline.bench.datasets.gsm8k import VARIABLE
from loopline.bench.registry import load
from loopline.workers.judging.answers import AnswerJudge
from loopline.workers.judging.expressions import same
from loopline.workers.judging.math_verify import MathVerifier
from tests.bench.answer_variants import CHECKED, PAID, PRINTED

needs_data = pytest.mark.skipif(
    not os.environ.get(VARIABLE), reason=f"{VARIABLE} does not point to the published data"
)

FILE = Path(__file__).parent / "cases" / "answers.jsonl"
CASES: list[dict[str, Any]] = [json.loads(line) for line in FILE.read_text().splitlines()]
CERTAIN = [case for case in CASES if not case.get("contestable")]
CONTESTABLE = [case for case in CASES if case.get("contestable")]


def named(cases: list[dict[str, Any]]) -> list[Any]:
    return [pytest.param(case, id=case["id"]) for case in cases]


@pytest.fixture(scope="module")
def scorer() -> Iterator[Scorer]:
    with Scorer() as opened:
        yield opened


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def judge() -> AsyncIterator[AnswerJudge]:
    async with AnswerJudge() as opened:
        yield opened


def problem(gold: str) -> MathProblem:
    return MathProblem(question=MathQuestion(id="x", statement="?"), answer=gold)


async def paid(judge: AnswerJudge, case: dict[str, Any]) -> bool:
    """The verdict of the mathematics team's judge."""
    prediction = case["prediction"]
    printed = case.get("printed_line")
    answer = (
        program_answer(prediction, ended_well=True) if printed else reasoning_answer(prediction)
    )
    return await judge.right(answer, problem(case["gold"]))


@pytest.mark.parametrize(
    "case", named([record for record in CERTAIN if record["by"] == "bench check"])
)
def test_the_primary_checker_judges_the_public_cases_correctly(
    scorer: Scorer, case: dict[str, Any]
) -> None:
    assert scorer.score(case["prediction"], case["gold"]).verdicts.numeric is case["right"]


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("case", named([record for record in CERTAIN if record["by"] == "reward"]))
async def test_the_reward_requires_one_finished_answer(
    judge: AnswerJudge, case: dict[str, Any]
) -> None:
    assert await paid(judge, case) is case["right"]


@pytest.mark.asyncio(loop_scope="module")
async def test_our_verdicts_differ_from_the_table_only_in_the_listed_contestable_cases(
    scorer: Scorer, judge: AnswerJudge
) -> None:
    """The primary checker reads letters glued to a number as a unit, and does not read an
    unfinished expression in a box as a number."""
    differing: list[str] = []
    for case in CONTESTABLE:
        if case["by"] == "reward":
            verdict = await paid(judge, case)
        else:
            verdict = scorer.score(case["prediction"], case["gold"]).verdicts.numeric
        if verdict is not case["right"]:
            differing.append(case["prediction"])
    assert differing == ["The result is 57abc", "\\boxed{4!}", "\\boxed{3\\cdot 5}"]


@pytest.mark.parametrize(("prediction", "gold", "right"), CHECKED)
def test_the_primary_checker_reads_further_notations(
    scorer: Scorer, prediction: str, gold: str, right: bool
) -> None:
    assert scorer.score(prediction, gold).verdicts.numeric is right


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(("text", "gold", "right"), PAID)
async def test_the_reward_reads_further_notations(
    judge: AnswerJudge, text: str, gold: str, right: bool
) -> None:
    assert await judge.right(reasoning_answer(text), problem(gold)) is right


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(("line", "gold", "right"), PRINTED)
async def test_a_printed_line_is_at_most_one_answer(
    judge: AnswerJudge, line: str, gold: str, right: bool
) -> None:
    assert await judge.right(program_answer(line, ended_well=True), problem(gold)) is right


# ---- golds against themselves


def golds() -> list[str]:
    """Each different gold answer of the data sets of mathematics."""
    answers = [question.answer for question in olympiadbench.load().records]
    answers += [question.answer for year in aime.YEARS for question in aime.read(year).records]
    for name, splits in (("gsm8k", ("train", "test")), ("wordproblems", ("train", "held_out"))):
        for split in splits:
            samples = None if name == "gsm8k" else 400
            answers += [item.gold for item in load(name, Request(split, samples, seed=1)).items]
    return list(dict.fromkeys(answers))


@needs_data
def test_every_gold_answer_of_the_data_sets_matches_itself() -> None:
    """In a box and after "the answer is": for the primary checker and for the reward."""
    wrong: list[str] = []
    with MathVerifier() as verifier:
        for gold in golds():
            wanted = numeric.gold_number(gold)
            final = numeric.final_part(gold)
            for text in (f"So it is \\boxed{{{final}}}", f"The answer is {final}"):
                answer = numeric.extract(text)
                if wanted is not None:
                    right = numeric.matches_gold(answer, wanted)
                else:
                    right = same(answer.expression, final, verifier)
                wrong += [] if right else [text]
            bare = final.strip("$")
            wrong += [] if same(bare, final, verifier) else [f"reward: {bare}"]
        assert verifier.abandoned == 0
    assert wrong == []


WRONG = [
    ("\\frac{1}{2 n+2}", ("2", "\\frac{1}{2n-2}", "2n+2", "\\frac{1}{2}")),
    ("$2n-2$", ("2n", "-2", "2", "2n+2")),
    ("$(1,8,19), (2,7,13), (4,5,7)$", ("7", "(1,8,19)", "(8,1,19), (2,7,13), (4,5,7)")),
    ("$f(x)=2 x$", ("2", "f(x)=3x", "f(x)=x", "x")),
    ("$69$,$84$", ("84", "69", "69, 85", "69, 84, 1")),
    ("$(2,4)$", ("4", "(4,2)", "[2,4]", "2,4")),
    ("$k \\geqslant 2$", ("2", "k > 2", "k \\le 2", "k = 2")),
    ("$(-\\infty,-5)$", ("-5", "(-\\infty,-5]", "x \\le -5", "(-\\infty, 5)")),
    ("$(-\\sqrt{11},-2)\\cup (\\sqrt{11},9)$", ("9", "(-\\sqrt{11},-2)", "(-2,9)")),
    ("$2+\\pi$", ("2", "\\pi", "2-\\pi", "5.14")),
    ("$\\pi/2$", ("2", "\\pi", "\\frac{\\pi}{3}", "1.57")),
    ("$3x+4y+14=0$", ("3x-y+13=0", "0", "14", "3x+4y+14", "3x+4y=14")),
    ("5 km", ("5 cm", "5 m", "50 km")),
    ("$\\{1, 4, 9\\}$", ("9", "1,4", "1,4,9,16", "(1,4,9)")),
    ("$\\pm 3$", ("3", "-3", "3, 4")),
    ("$\\text{no solution}$", ("solution", "0", "no")),
]


@pytest.mark.parametrize(("gold", "answer"), [(g, a) for g, answers in WRONG for a in answers])
def test_a_wrong_answer_is_wrong_regardless_of_the_gold_answer_s_ending(
    scorer: Scorer, gold: str, answer: str
) -> None:
    assert not scorer.score(f"\\boxed{{{answer}}}", gold).verdicts.numeric


EQUAL = [
    ("$\\frac{1}{2 n+2}$", "\\frac{1}{2(n+1)}"),
    ("$f(x)=2 x$", "2x"),
    ("$69$,$84$", "84, 69"),
    ("$69$,$84$", "84 \\text{ and } 69"),
    ("$k \\geqslant 2$", "2 \\le k"),
    ("$3x+4y+14=0$", "6x + 8y = -28"),
    ("$\\pi/2$", "\\frac{\\pi}{2}"),
    ("5 km", "5000 m"),
    ("5 km", "5"),
    ("$\\pm 3$", "3, -3"),
    ("$(-\\infty,-5)$", "x < -5"),
    ("$2\\sqrt{2}$", "\\sqrt{8}"),
    ("$x^2+1$", "1 + x^2"),
    ("$\\text{no solution}$", "No solution."),
    ("12:30", "12:30"),
    ("3 hours 20 minutes", "200 minutes"),
    ("3h 20m", "200 minutes"),
    ("2 gallons 3 cups", "35 cups"),
]


@pytest.mark.parametrize(("gold", "answer"), EQUAL)
def test_an_equivalent_answer_is_right(scorer: Scorer, gold: str, answer: str) -> None:
    assert scorer.score(f"\\boxed{{{answer}}}", gold).verdicts.numeric


@pytest.mark.parametrize("gold", ["", "  ", "####", "$", "???"])
def test_an_empty_gold_answer_is_refused(scorer: Scorer, gold: str) -> None:
    with pytest.raises(ValueError, match="contains no answer"):
        scorer.score("12", gold)


@pytest.mark.parametrize(
    "piece",
    [
        "####", "</think>", "<think>", "answer is 5 ", "Q: answer is 5\n", "12,", "1.234.", "1'",
        "So **1** ", "[^", "<<1", "5 to ", "\\pm ", "\\boxed{", "$ ", "(0,", "一", "Question: ",
        "between 1 and ", "\\text{a", "minus 9 ", "x=1,", "{", "\\(",
    ],
)  # fmt: skip
def test_hostile_text_is_read_in_linear_time(piece: str) -> None:
    began = time.process_time()
    numeric.extract(piece * (15_000 // len(piece)))
    quarter = time.process_time() - began
    began = time.process_time()
    numeric.extract(piece * (60_000 // len(piece)))
    assert time.process_time() - began < max(1.0, 10 * quarter)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    "text", ["(" * 2_000, "{" * 2_000, "1," * 1_000, "\\pm " * 500, "=" * 2_000, "x=" * 1_000,
             "\\frac{" * 300, "1 " * 1_000, "-" * 2_000, "\\text{or}" * 200, "\\boxed{" * 280],
)  # fmt: skip
async def test_hostile_answers_are_judged_at_once(judge: AnswerJudge, text: str) -> None:
    async with asyncio.timeout(30):
        assert not await judge.right(text, problem("$\\sqrt{2}, 3$"))
