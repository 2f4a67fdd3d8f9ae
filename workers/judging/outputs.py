"""Programs of a tool user: run in the sandbox, and their answers compared."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence

from agents.environments.math_team import MathProblem, program_answer
from agents.judging import Failure, OutputVerdict
from workers.judging.answers import AnswerJudge
from workers.judging.failures import failure_by
from workers.sandbox import Ending, Limits, Sandbox

MAX_SHOWN = 2_000
"""Of what a program wrote; its end."""


async def judged_outputs(
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
    ran = await asyncio.gather(*(_run(sandbox, each, seconds) for each in different))
    found: dict[str, OutputVerdict] = {}
    for program, verdict in zip(different, ran, strict=True):
        if verdict.failure is None:
            right = await answers.right(verdict.answer, problem)
            agrees = bool(reasoner) and await answers.equal(verdict.answer, reasoner)
            failure = None if right else Failure.WRONG_ANSWER
            verdict = verdict.model_copy(update={"failure": failure, "agrees": agrees})
        found[program] = verdict
    return tuple(found[each] for each in programs)


async def _run(sandbox: Sandbox, program: str, seconds: float) -> OutputVerdict:
    """Its answer; without one, why."""
    if not program:
        return OutputVerdict(failure=Failure.NO_CODE)
    limits = _within(sandbox.limits, seconds)
    result = await sandbox.run(program, limits=limits)
    output = result.stdout[-MAX_SHOWN:]
    well = result.ending is Ending.OK
    answer = program_answer(result.stdout, ended_well=well)
    if answer:
        return OutputVerdict(output=output, answer=answer)
    if well:
        return OutputVerdict(output=output, trouble="it printed no answer", failure=Failure.CRASHED)
    last = result.stderr.strip().rpartition("\n")[2][:300]
    trouble = f"{result.ending}: {last}" if last else str(result.ending)
    return OutputVerdict(output=output, trouble=trouble, failure=failure_by(trouble))


def _within(general: Limits, seconds: float) -> Limits:
    return general.model_copy(
        update={"wall_seconds": seconds, "cpu_seconds": max(1, math.ceil(seconds))}
    )
