"""Runs a turn of coder and unit tester: the facts that `agents.environments.code.team` needs."""

from __future__ import annotations

from agents.environments.code import CallTest, CodeProblem, ProgramTest
from agents.environments.code.team import Facts, Turn
from workers.sandbox.judge import Judge


class CodeTeamJudge:
    """Facts of turns, by a judge whose sandbox is open. Golden programs that are wrong (APPS has
    some) are passed over: the first one that passes all golden tests is the one to ask."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self._golden: dict[str, str | None] = {}

    async def turn(
        self, problem: CodeProblem, code: str, test: ProgramTest | CallTest | None
    ) -> Turn:
        """What came of a program (empty: none) and a test. Raises SandboxUnavailable."""
        rate = (await self._judge.judge(problem, code)).pass_rate if code else 0.0
        agree, actual, why = False, "", ""
        if code and test is not None:
            (outcome,) = (await self._judge.check(problem, code, [test])).outcomes
            agree, actual, why = outcome.passed, outcome.actual, outcome.why
        facts = Facts(
            golden_pass_rate=rate,
            golden_passes_test=await self.golden_passes(problem, test),
            agree=agree,
            actual=actual,
            why=why,
        )
        return Turn(code=code, test=test, facts=facts)

    async def golden_passes(
        self, problem: CodeProblem, test: ProgramTest | CallTest | None
    ) -> bool | None:
        """Whether a golden program passes the test, False for no test; None without a golden
        program."""
        golden = await self._golden_program(problem)
        if golden is None:
            return None
        return test is not None and (await self._judge.check(problem, golden, [test])).solved

    async def _golden_program(self, problem: CodeProblem) -> str | None:
        if problem.id not in self._golden:
            self._golden[problem.id] = None
            for solution in problem.solutions:
                if (await self._judge.judge(problem, solution)).solved:
                    self._golden[problem.id] = solution
                    break
        return self._golden[problem.id]
