"""Compares answers: as numbers within a tolerance, or part by part (`expressions`). The comparison
is strict because rewards depend on it: one correct answer is rewarded, several answers are not, and
repeating the question's own expression is not an answer."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from typing import Self

from loopline.agents.answers import parse_number
from loopline.agents.environments.math_team import MathProblem
from loopline.workers.judging.expressions import same
from loopline.workers.judging.math_verify import MathVerifier


class AnswerJudge:
    """Owner of a Math-Verify child process, which starts with the first question. A context
    manager, to be used from one event loop."""

    def __init__(self) -> None:
        """Raises `MathVerifyMissing`."""
        self._verifier = MathVerifier()
        # The child serves one question at a time.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="math-verify")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)
        self._verifier.close()

    async def right(self, answer: str, problem: MathProblem) -> bool:
        """Whether the answer matches the gold answer; a missing (empty) answer does not. Raises
        RuntimeError if the child does not start."""
        if problem.tolerance is not None and _is_within_tolerance(
            answer, problem.answer, problem.tolerance
        ):
            return True
        return await self.equal(answer, problem.answer)

    async def equal(self, answer: str, reference: str) -> bool:
        """Whether an answer matches the reference. The comparison need not be symmetric: the
        reference is assumed to be well-formed. Raises as `right`."""
        if not answer.strip():
            return False
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, same, answer, reference, self._verifier)


def _is_within_tolerance(answer: str, gold: str, tolerance: float) -> bool:
    answer_number, gold_number = parse_number(answer), parse_number(_strip_formatting(gold))
    if answer_number is None or gold_number is None or answer_number.percent != gold_number.percent:
        return False
    # Exact decimals, as written: 4.3 is within 0.1 of 4.2, despite binary rounding.
    return abs(answer_number.value - gold_number.value) <= Fraction(str(tolerance))


def _strip_formatting(text: str) -> str:
    return text.strip().strip("$").strip()
