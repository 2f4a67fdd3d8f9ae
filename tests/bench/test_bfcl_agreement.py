"""Our BFCL checker compared with the published package's, on thousands of right and wrong calls."""

from __future__ import annotations

import os
from collections import Counter
from typing import Any

import pytest

from loopline.bench.checkers.bfcl import BfclVerdict, check
from loopline.bench.checkers.tool_calls import tool_calls
from loopline.bench.datasets.bfcl import WRITTEN, load
from loopline.bench.datasets.gsm8k import VARIABLE
from tests.bench.bfcl_calls import MUTATIONS, Generated, generate, written
from tests.bench.bfcl_package import PublishedChecker

pytestmark = pytest.mark.skipif(
    not os.environ.get(VARIABLE), reason=f"{VARIABLE} does not point to the published questions"
)

SEED = 7
CALLED = [category for category in WRITTEN if category != "irrelevance"]

DIFFERENCES = {
    "parallel_180": (
        "Eight calls differ in one argument that may be left out. The published checker gives the "
        "call without it to the first wanted one, whose own call then fits no other: it never "
        "looks back. There is a matching, so the calls are right."
    ),
    "OverflowError": (
        "An integer too large for a float stands where a float is declared. The published checker "
        "raises; here it is a wrong value."
    ),
}
"""The differences between the two: a question's id, or the exception of the published checker."""

FAMILIES = {
    "wrong number of calls": "wrong_count",
    "wrong function": "wrong_func_name",
    "missing argument": "missing_",
    "unexpected argument": "unexpected_param",
    "wrong type": "type_error",
    "wrong value": "value_error",
    "no matching call": "cannot_find_match",
}
"""Our faults and the corresponding parts of the published error types."""

CONTRADICTIONS = {
    "simple_python_17": "may leave out `formatted`, which is required",
    "simple_python_200": "may leave out `fuel_efficiency`, which is required",
    "parallel_88": "may leave out `initial_velocity`, which is required",
    "parallel_multiple_87": "may leave out `initial_velocity`, which is required",
    "parallel_multiple_12": "wants `permeability`, which the function does not have",
    "parallel_multiple_26": "wants `type`, which the function does not have",
}
"""Possible answers of these questions that contradict their functions."""


@pytest.fixture(scope="module")
def answers() -> list[Generated]:
    return [answer for category in CALLED for answer in generate(load(category).records, SEED)]


@pytest.fixture(scope="module")
def judged(answers: list[Generated]) -> list[tuple[Generated, BfclVerdict, dict[str, Any]]]:
    """Each answer with our verdict and the published one."""
    published = PublishedChecker()
    return [
        (answer, check(answer.question, answer.calls), _published(published, answer))
        for answer in answers
    ]


def _published(checker: PublishedChecker, answer: Generated) -> dict[str, Any]:
    try:
        return checker.verdict(answer.question, answer.calls)
    except OverflowError as error:
        return {"valid": None, "error_type": type(error).__name__}


def test_the_two_checkers_agree_except_for_the_listed_differences(
    judged: list[tuple[Generated, BfclVerdict, dict[str, Any]]],
) -> None:
    """On far more than a thousand calls, with each listed difference present."""
    different = {
        answer.question.id if reference["valid"] is not None else reference["error_type"]
        for answer, verdict, reference in judged
        if reference["valid"] is not verdict.right
    }
    assert len(judged) >= 10_000
    assert different == set(DIFFERENCES)


def test_the_checkers_also_agree_on_wrong_calls(
    judged: list[tuple[Generated, BfclVerdict, dict[str, Any]]],
) -> None:
    """Both checkers' first fault is of the same family."""
    mismatches = [
        (answer.question.id, answer.mutation, verdict.fault, reference["error_type"])
        for answer, verdict, reference in judged
        if verdict.fault is not None
        and reference["valid"] is False
        and FAMILIES[verdict.fault] not in reference["error_type"]
    ]
    assert mismatches == []


def test_every_tried_variant_yields_right_and_wrong_calls(
    judged: list[tuple[Generated, BfclVerdict, dict[str, Any]]],
) -> None:
    """Agreement on uniform calls would mean nothing."""
    faults = Counter(str(verdict.fault) for _, verdict, _ in judged)
    assert faults.keys() == {"None", *FAMILIES}
    assert all(count >= 300 for count in faults.values())
    assert {answer.mutation for answer, _, _ in judged} == set(MUTATIONS)


def test_calls_written_as_python_are_parsed_back_and_judged_alike(answers: list[Generated]) -> None:
    """The notation that BFCL's prompt requests; two answers for each question."""
    for answer in answers:
        if answer.mutation in ("as it should be", "another value"):
            read = tool_calls(written(answer.calls))
            assert read is not None
            assert [(call.name, call.arguments) for call in read] == [
                (call.name, call.arguments) for call in answer.calls
            ]


def test_the_possible_answers_are_right_except_where_the_data_contradict_themselves(
    answers: list[Generated],
) -> None:
    """For any possible value of an argument, and without optional arguments."""
    wrong = {
        answer.question.id
        for answer in answers
        if answer.mutation.startswith("as it should be")
        and not check(answer.question, answer.calls).right
    }
    assert wrong == CONTRADICTIONS.keys()
