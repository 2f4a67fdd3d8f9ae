"""The success of a program that ignores its input, and the worth of a test that ignores its
problem: the best constant of each, found by search."""

from __future__ import annotations

import ast
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import pytest

from loopline.agents.environments.code import AssertionTest, CodeProblem, ProgramTest
from loopline.bench.datasets import Request, apps_selected, humaneval, mbpp
from loopline.bench.datasets.gsm8k import VARIABLE
from loopline.bench.registry import load as load_dataset
from loopline.bench.teams.constant_programs import solving_constant

needs_data = pytest.mark.skipif(
    not os.environ.get(VARIABLE), reason=f"{VARIABLE} does not point to the published data"
)
Load = Callable[[], Sequence[CodeProblem]]
HUMANEVAL = pytest.param(lambda: humaneval.load().records, id="humaneval")
MBPP = pytest.param(lambda: mbpp.load().records, id="mbpp")
APPS = pytest.param(lambda: apps_selected.load().records, id="apps")


def best(problems: Sequence[CodeProblem]) -> tuple[str, float]:
    """The constant that solves most problems, and their share."""
    solved = Counter(
        value for problem in problems if (value := solving_constant(problem)) is not None
    )
    top = solved.most_common(1)
    return (top[0][0], top[0][1] / len(problems)) if top else ("", 0.0)


@needs_data
@pytest.mark.parametrize(
    ("load", "constant", "share"),
    [
        pytest.param(lambda: humaneval.load().records, None, 1 / 164, id="humaneval"),
        pytest.param(lambda: mbpp.load().records, "True", 13 / 427, id="mbpp"),
        pytest.param(lambda: apps_selected.load().records, None, 0.0, id="apps"),
    ],
)
def test_the_best_constant_solves_next_to_nothing(
    load: Load, constant: str | None, share: float
) -> None:
    """As README states next to the measurements of programs."""
    answer, solved = best(load())
    assert solved == share
    assert constant is None or answer == constant


@needs_data
def test_a_benchmark_of_programs_reports_the_best_constant_as_a_baseline() -> None:
    request = Request("test", choices={"dataset": "humaneval"})
    reference = load_dataset("code", request).reference
    assert reference["instances"] == 164
    assert reference["baselines"] == {"a program that always prints the same text": 1}


@needs_data
@pytest.mark.parametrize("load", [HUMANEVAL, MBPP, APPS])
def test_the_best_test_that_ignores_its_problem_is_rarely_right(load: Load) -> None:
    """As far as the data set's own tests define correctness: for example `[]` for `[]`."""
    problems = load()
    right = Counter(pair for problem in problems for pair in {*pairs(problem)})
    assert right.most_common(1)[0][1] / len(problems) < 0.07


def pairs(problem: CodeProblem) -> Iterator[tuple[str, str]]:
    """Inputs and their outputs."""
    for test in problem.tests:
        if isinstance(test, ProgramTest):
            yield test.stdin.strip(), test.stdout.strip()
        elif isinstance(test, AssertionTest):
            for node in ast.walk(ast.parse(test.source)):
                match node:
                    case ast.Assert(
                        test=ast.Compare(
                            left=ast.Call(args=given), ops=[ast.Eq()], comparators=[value]
                        )
                    ):
                        yield ", ".join(map(ast.unparse, given)), ast.unparse(value)
                    case _:
                        pass
        else:
            yield repr(test.arguments), repr(test.expected)
