"""Whether an answer is another one: a number within a tolerance, or the same part by part
(`expressions`). It is asked strictly: rewards depend on it, so one answer is paid and several are
not, and a question's own expression is not an answer."""

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
    """Owner of a Math-Verify child process, which the first question starts. A context, to be used
    from one event loop."""

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
        """Whether it is the gold answer; a missing one (empty) is not. Raises RuntimeError when the
        child does not come up."""
        if problem.tolerance is not None and _is_within_tolerance(
            answer, problem.answer, problem.tolerance
        ):
            return True
        return await self.equal(answer, problem.answer)

    async def equal(self, answer: str, reference: str) -> bool:
        """Whether an answer is the reference. It need not be symmetric: the reference is taken for
        well-formed. Raises as `right`."""
        if not answer.strip():
            return False
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, same, answer, reference, self._verifier)


def _is_within_tolerance(answer: str, gold: str, tolerance: float) -> bool:
    answer_number, gold_number = parse_number(answer), parse_number(_strip_formatting(gold))
    if answer_number is None or gold_number is None or answer_number.percent != gold_number.percent:
        return False
    # The decimal that was written: 4.3 lies within 0.1 of 4.2, whatever binary fractions say.
    return abs(answer_number.value - gold_number.value) <= Fraction(str(tolerance))


def _strip_formatting(text: str) -> str:
    return text.strip().strip("$").strip()
