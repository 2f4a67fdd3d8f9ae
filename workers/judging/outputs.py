"""Programs of a tool user: runs them in the sandbox and compares their answers."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence

from loopline.agents.environments.math_team import MathProblem, program_answer
from loopline.agents.environments.tool_program import MAX_OUTPUT, ProgramRun, last_line
from loopline.agents.judging import Failure, OutputVerdict
from loopline.workers.judging.answers import AnswerJudge
from loopline.workers.judging.programs import failure_by
from loopline.workers.sandbox import Ending, Limits, Sandbox
from loopline.workers.sandbox.limits import WAITING


async def program_runs(
    sandbox: Sandbox, programs: Sequence[str], *, stdin: str, seconds: float
) -> tuple[ProgramRun, ...]:
    """Result of each program. Raises SandboxUnavailable."""
    ran = await asyncio.gather(
        *(run_program(sandbox, program, stdin=stdin, seconds=seconds) for program in programs)
    )
    return tuple(ran)


async def run_program(
    sandbox: Sandbox, program: str, *, seconds: float, stdin: str = ""
) -> ProgramRun:
    """Run one program. Raises SandboxUnavailable."""
    result = await sandbox.run(program, stdin=stdin, limits=_limits_within(sandbox.limits, seconds))
    output = result.stdout[-MAX_OUTPUT:]
    if result.ending is Ending.OK:
        return ProgramRun(output=output, last=last_line(result.stdout))
    message = result.stderr.strip().rpartition("\n")[2][:300]
    return ProgramRun(
        output=output, trouble=f"{result.ending}: {message}" if message else str(result.ending)
    )


def _limits_within(general: Limits, seconds: float) -> Limits:
    return general.model_copy(
        update={"wall_seconds": WAITING * seconds, "cpu_seconds": max(1, math.ceil(seconds))}
    )


async def judge_outputs(
    sandbox: Sandbox,
    answers: AnswerJudge,
    problem: MathProblem,
    programs: Sequence[str],
    *,
    seconds: float,
    reasoner: str,
) -> tuple[OutputVerdict, ...]:
    """A verdict for each program (empty: missing). Equal programs are run once. Raises
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
