"""Who judges a benchmark's runs, by which checkers, and into which classes they fall.

The benches of tool use and of teams bring their own; every other benchmark asks for a number.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from loopline.agents.records import Outcome
from loopline.bench.checkers import DESCRIPTIONS, Scorer
from loopline.bench.judgement import Judge
from loopline.bench.output import Manifest
from loopline.bench.results import Result
from loopline.bench.taxonomy import Class, classify
from loopline.bench.teams import CODE, MATH, PUZZLES
from loopline.bench.tools.suites import SUITES

Classifier = Callable[[Result, str], Class]
"""From a result and the gold answer to its class."""


@dataclass(frozen=True)
class Judging:
    """Of one benchmark."""

    judge: Callable[[Manifest, Path], AbstractContextManager[Judge]]
    """Ready to work; the path is the folder of problems, where there are hidden tests or gold
    answers. Raises UsageError for a judge that lacks something here."""
    checkers: dict[str, str]
    """Checker → its rule; the primary one first."""
    class_of: Classifier
    require: Callable[[Manifest], None] = lambda manifest: None
    """Raises UsageError where there is nothing that programs could be run in."""


def judging_of(benchmark: str) -> Judging:
    """How it is judged."""
    suite = SUITES.get(benchmark)
    if suite is not None:
        from loopline.bench.tools.classes import class_of as class_of_step

        return Judging(
            lambda manifest, _: nullcontext(suite.judge(manifest.reference)),
            suite.checkers,
            _by_signals(class_of_step),
        )
    if benchmark == PUZZLES:
        from loopline.bench.puzzles import judge as of_puzzles

        return Judging(
            lambda manifest, _: nullcontext(of_puzzles.PuzzlesJudge()),
            of_puzzles.CHECKERS,
            _by_signals(of_puzzles.class_of),
        )
    if benchmark in (CODE, MATH):
        from loopline.bench.teams import problem_judge as of_problems

        return Judging(
            of_problems.problem_judge,
            of_problems.CODE_CHECKERS if benchmark == CODE else of_problems.MATH_CHECKERS,
            _by_signals(of_problems.class_of),
            of_problems.require_sandbox,
        )
    return Judging(lambda manifest, _: _scorer(), DESCRIPTIONS, _by_answer)


@contextmanager
def _scorer() -> Generator[Judge]:
    with Scorer() as scorer:
        scorer.prepare()
        yield scorer


def _by_signals(class_of: Callable[[Outcome, bool, Collection[str]], Class]) -> Classifier:
    """Of a judge that saw more than the answer."""
    return lambda result, gold: class_of(result.outcome, result.right, result.signals)


def _by_answer(result: Result, gold: str) -> Class:
    return classify(
        outcome=result.outcome,
        prediction=result.prediction,
        where=result.where,
        verdicts=result.verdicts,
        signals=result.signals,
        gold=gold,
    )
