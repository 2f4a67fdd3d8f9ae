"""Programs against hidden tests, and generated tests against a golden program."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence

from agents.environments.code import CallTest, CodeProblem, ProgramTest
from agents.judging import Failure, ProgramVerdict, TestVerdict
from workers.judging.failures import failure_of
from workers.sandbox.judge import Judge, Outcome

PATIENCE = 3
"""Time-outs of one program after which its other tests count as timed out untried: a program that
hangs would else hold its judge up for minutes."""
_TOGETHER = 16
"""Tests between two looks at that."""


class ProgramJudge:
    """Verdicts by a judge whose sandbox is open. Golden programs that are wrong (APPS has some) are
    passed over: the first one that passes all golden tests is the one to ask."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self._golden: dict[str, asyncio.Task[str | None]] = {}

    async def programs(
        self, problem: CodeProblem, programs: Sequence[str]
    ) -> tuple[ProgramVerdict, ...]:
        """A verdict for each program (empty: none); equal ones are run once. Raises
        SandboxUnavailable."""
        different = list(dict.fromkeys(programs))
        found = await asyncio.gather(*(self.program(problem, each) for each in different))
        by_program = dict(zip(different, found, strict=True))
        return tuple(by_program[each] for each in programs)

    async def program(self, problem: CodeProblem, program: str) -> ProgramVerdict:
        """How it does against the golden tests. Raises SandboxUnavailable."""
        total = len(problem.tests)
        if not program:
            return ProgramVerdict(pass_rate=0.0, failures={Failure.NO_CODE: total})
        failures: Counter[Failure] = Counter()
        tried = 0
        while tried < total and failures[Failure.TIMED_OUT] < PATIENCE:
            tests = problem.tests[tried : tried + _TOGETHER]
            outcomes = (await self._judge.check(problem, program, tests)).outcomes
            found = map(failure_of, outcomes, tests)
            failures.update(failure for failure in found if failure is not None)
            tried += len(tests)
        failures[Failure.TIMED_OUT] += total - tried
        passed = total - failures.total()
        return ProgramVerdict(
            pass_rate=passed / total,
            failures={failure: count for failure, count in failures.items() if count},
        )

    async def tests(
        self, problem: CodeProblem, program: str, tests: Sequence[ProgramTest | CallTest | None]
    ) -> tuple[TestVerdict, ...]:
        """What each generated test (None: there is none) is worth beside a program (empty: none).
        Raises SandboxUnavailable."""
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
        """Found out once; those who ask meanwhile wait for it."""
        finding = self._golden.get(problem.id)
        if finding is None or (finding.done() and _failed(finding)):
            finding = asyncio.create_task(self._first_right(problem))
            self._golden[problem.id] = finding
        # Whoever asked first may be cancelled; the others still want to know.
        return await asyncio.shield(finding)

    async def _first_right(self, problem: CodeProblem) -> str | None:
        for solution in problem.solutions:
            if (await self.program(problem, solution)).pass_rate == 1.0:
                return solution
        return None


def _failed(finding: asyncio.Task[str | None]) -> bool:
    return finding.cancelled() or finding.exception() is not None
