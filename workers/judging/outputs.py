"""Programs of a tool user: run in the sandbox, and their answers compared."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from loopline.agents.environments.math_team import MathProblem, program_answer
from loopline.agents.judging import Failure, OutputVerdict
from loopline.workers.judging.answers import AnswerJudge
from loopline.workers.judging.failures import failure_by
from loopline.workers.judging.runs import run_program
from loopline.workers.sandbox import Sandbox


async def judge_outputs(
    sandbox: Sandbox,
    answers: AnswerJudge,
    problem: MathProblem,
    programs: Sequence[str],
    *,
    seconds: float,
    reasoner: str,
) -> tuple[OutputVerdict, ...]:
    """A verdict for each program (empty: none); equal ones are run once. Raises
    SandboxUnavailable."""
    different = list(dict.fromkeys(programs))
    ran = await asyncio.gather(*(_run(sandbox, source, seconds) for source in different))
    verdict_by_program: dict[str, OutputVerdict] = {}
    for program, verdict in zip(different, ran, strict=True):
        if verdict.failure is None:
            right = await answers.right(verdict.answer, problem)
            agrees = bool(reasoner) and await answers.equal(verdict.answer, reasoner)
            failure = None if right else Failure.WRONG_ANSWER
            verdict = verdict.model_copy(update={"failure": failure, "agrees": agrees})
        verdict_by_program[program] = verdict
    return tuple(verdict_by_program[source] for source in programs)


async def _run(sandbox: Sandbox, program: str, seconds: float) -> OutputVerdict:
    """Run a program; returns its answer or, without one, the reason."""
    if not program:
        return OutputVerdict(failure=Failure.NO_CODE)
    ran = await run_program(sandbox, program, seconds=seconds)
    if ran.trouble:
        return OutputVerdict(
            output=ran.output, trouble=ran.trouble, failure=failure_by(ran.trouble)
        )
    answer = program_answer(ran.last, ended_well=True)
    if answer:
        return OutputVerdict(output=ran.output, answer=answer)
    return OutputVerdict(output=ran.output, trouble="it printed no answer", failure=Failure.CRASHED)
