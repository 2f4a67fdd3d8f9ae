"""Who judges a benchmark's runs, by which checkers, and into which classes they fall.

The benches of tool use and of teams bring their own; every other benchmark asks for a number.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from bench.checkers import DESCRIPTIONS, Scorer
from bench.judgement import Judge
from bench.output import Manifest
from bench.results import Result
from bench.taxonomy import Class, classify
from bench.teams import CODE, MATH, PUZZLES
from bench.tools.suites import SUITES

Classifier = Callable[[Result, str], Class]
"""From a result and the gold answer to its class."""


@contextmanager
def judge_of(manifest: Manifest, problems: Path) -> Generator[Judge]:
    """The judge of a benchmark, ready to work; `problems` is the folder of those that have hidden
    tests or gold answers. Raises UsageError for a judge that lacks something here."""
    suite = SUITES.get(manifest.benchmark)
    if suite is not None:
        yield suite.judge(manifest.reference)
        return
    if manifest.benchmark == PUZZLES:
        from bench.puzzles.judge import PuzzlesJudge

        yield PuzzlesJudge()
        return
    if manifest.benchmark in (CODE, MATH):
        from bench.teams.problem_judge import problem_judge

        with problem_judge(manifest, problems) as judge:
            yield judge
        return
    with Scorer() as scorer:
        scorer.prepare()
        yield scorer


def require_means(manifest: Manifest) -> None:
    """Raises UsageError where the judge of a benchmark lacks what it runs programs in."""
    if manifest.benchmark in (CODE, MATH):
        from bench.teams.problem_judge import may_run_unsafe, require_sandbox

        require_sandbox(unsafe_exec=may_run_unsafe(manifest))


def checkers_of(manifest: Manifest) -> dict[str, str]:
    """Checker → its rule; the primary one first."""
    if manifest.benchmark == PUZZLES:
        from bench.puzzles.judge import CHECKERS

        return CHECKERS
    if manifest.benchmark in (CODE, MATH):
        from bench.teams.problem_judge import CODE_CHECKERS, MATH_CHECKERS

        return CODE_CHECKERS if manifest.benchmark == CODE else MATH_CHECKERS
    suite = SUITES.get(manifest.benchmark)
    return DESCRIPTIONS if suite is None else suite.checkers


def classifier_of(manifest: Manifest) -> Classifier:
    """How a benchmark's results are put into classes."""
    if manifest.benchmark in SUITES:
        from bench.tools.classes import class_of

        return lambda result, gold: class_of(result.outcome, result.right, result.signals)
    if manifest.benchmark == PUZZLES:
        from bench.puzzles.judge import class_of as class_of_play

        return lambda result, gold: class_of_play(result.outcome, result.right, result.signals)
    if manifest.benchmark in (CODE, MATH):
        from bench.teams.problem_judge import class_of as class_of_problem

        return lambda result, gold: class_of_problem(result.outcome, result.right, result.signals)
    return _by_answer


def _by_answer(result: Result, gold: str) -> Class:
    return classify(
        outcome=result.outcome,
        prediction=result.prediction,
        where=result.where,
        verdicts=result.verdicts,
        signals=result.signals,
        gold=gold,
    )
