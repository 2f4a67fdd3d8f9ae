"""Judges programs by hidden tests, and generated tests by a golden program.

The reason for a failed test is one of a few classes. It is derived from the sandbox's result, else
from the last line that the program wrote or the exception that it reported. These are the program's
own words: at most, a program can choose the class of its failure.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from loopline.agents.environments.code import (
    AssertionTest,
    CallTest,
    CodeProblem,
    CodeTest,
    ProgramTest,
)
from loopline.agents.judging import Failure, ProgramVerdict, TestVerdict
from loopline.workers.judging.problems import key_of
from loopline.workers.sandbox import Ending
from loopline.workers.sandbox.judge import OF_THE_TEST, Judge, Outcome

_REFUSED = re.compile(
    r"PermissionError|Operation not permitted|Read-only file system|Network is unreachable"
    r"|gaierror|name resolution|can't start new thread"
)
"""The sandbox's refusals as a program sees them."""

_ENDED = {
    Ending.TIMED_OUT: Failure.TIMED_OUT,
    Ending.OUT_OF_MEMORY: Failure.REFUSED,
    Ending.OUTPUT_TOO_LONG: Failure.REFUSED,
    Ending.KILLED: Failure.CRASHED,
}


def failure_of(outcome: Outcome, test: CodeTest) -> Failure | None:
    """The failure class of an outcome; None for a passed test."""
    if outcome.passed:
        return None
    why = outcome.why.removeprefix(OF_THE_TEST)
    wrong = "AssertionError" if isinstance(test, AssertionTest) else "wrong answer"
    return Failure.WRONG_ANSWER if why.startswith(wrong) else failure_by(why)


def failure_by(why: str) -> Failure:
    """The failure class of a program that gave no answer, from how it ended and its last output."""
    for ending, failure in _ENDED.items():
        if why.startswith(ending):
            return failure
    return Failure.REFUSED if _REFUSED.search(why) else Failure.CRASHED


log = structlog.get_logger("loopline.workers.judging")

PATIENCE = 3
"""Time-outs of one program after which its remaining tests are treated as timed out."""
KEPT = 256
"""Number of problems whose golden programs are remembered."""


@dataclass(frozen=True)
class _Golden:
    """Result of the search among a problem's golden programs."""

    program: str | None
    in_time: bool
    """Whether none of the golden programs ran out of time."""


class ProgramJudge:
    """Verdicts by a judge whose sandbox is open. Wrong golden programs (APPS has some) are skipped:
    the first one that passes all golden tests is used."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self._golden: OrderedDict[str, asyncio.Task[_Golden]] = OrderedDict()
        """Golden results by the problem's key, because problems of one name may have different
        tests and solutions."""

    async def programs(
        self, problem: CodeProblem, programs: Sequence[str]
    ) -> tuple[ProgramVerdict, ...]:
        """A verdict for each program (empty: missing). Equal programs are run once. Raises
        SandboxUnavailable."""
        different = list(dict.fromkeys(programs))
        verdicts = await asyncio.gather(*(self.program(problem, program) for program in different))
        by_program = dict(zip(different, verdicts, strict=True))
        return tuple(by_program[program] for program in programs)

    async def program(self, problem: CodeProblem, program: str) -> ProgramVerdict:
        """The program's verdict on the golden tests. Raises SandboxUnavailable."""
        total = len(problem.tests)
        if not program:
            return ProgramVerdict(pass_rate=0.0, failures={Failure.NO_CODE: total})
        verdict = await self._judge.check(problem, program, problem.tests, patience=PATIENCE)
        failure_kinds = map(failure_of, verdict.outcomes, problem.tests)
        failures = Counter(failure for failure in failure_kinds if failure is not None)
        return ProgramVerdict(pass_rate=(total - failures.total()) / total, failures=dict(failures))

    async def tests(
        self, problem: CodeProblem, program: str, tests: Sequence[ProgramTest | CallTest | None]
    ) -> tuple[TestVerdict, ...]:
        """A verdict on each generated test (None: missing) by the golden program and by this
        program (empty: missing). Raises SandboxUnavailable."""
        golden = await self._golden_program(problem)
        written = [test for test in tests if test is not None]
        of_golden, of_program = await asyncio.gather(
            self._outcomes(problem, golden or "", written),
            self._outcomes(problem, program, written),
        )
        outcomes = iter(zip(of_golden, of_program, strict=True))
        verdicts: list[TestVerdict] = []
        for test in tests:
            if test is None:
                verdicts.append(TestVerdict(right=None if golden is None else False))
                continue
            by_golden, by_program = next(outcomes)
            verdicts.append(
                TestVerdict(
                    right=None if golden is None else by_golden.passed,
                    agrees=by_program.passed,
                    actual=by_program.actual,
                    why=by_program.why,
                )
            )
        return tuple(verdicts)

    async def _outcomes(
        self, problem: CodeProblem, program: str, tests: Sequence[ProgramTest | CallTest]
    ) -> Sequence[Outcome]:
        if not program:
            return [Outcome(False, "", "")] * len(tests)
        return (await self._judge.check(problem, program, tests)).outcomes

    async def _golden_program(self, problem: CodeProblem) -> str | None:
        """Find the golden program once; concurrent callers wait for the result."""
        key = key_of(problem)
        finding = self._golden.get(key)
        if finding is None or (finding.done() and not _is_final(finding)):
            finding = self._golden[key] = asyncio.create_task(self._find_golden_program(problem))
            if len(self._golden) > KEPT:
                self._golden.popitem(last=False)
        self._golden.move_to_end(key)
        # The first caller may be cancelled; the others still need the result.
        return (await asyncio.shield(finding)).program

    async def _find_golden_program(self, problem: CodeProblem) -> _Golden:
        in_time = True
        for solution in problem.solutions:
            verdict = await self.program(problem, solution)
            if verdict.pass_rate == 1.0:
                return _Golden(solution, in_time=True)
            # A program that also gave a wrong answer is wrong, however much time it gets.
            if (
                Failure.TIMED_OUT in verdict.failures
                and Failure.WRONG_ANSWER not in verdict.failures
            ):
                in_time = False
        if not in_time:
            log.warning("golden programs ran out of time", problem=problem.id)
        return _Golden(None, in_time=in_time)


def _is_final(finding: asyncio.Task[_Golden]) -> bool:
    """Whether a repeated search would find the same. A program that ran out of time may have been
    slow because the machine was busy."""
    if finding.cancelled() or finding.exception() is not None:
        return False
    return finding.result().in_time
