"""Programs that are run for what they print."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence

from loopline.agents.environments.tool_program import MAX_OUTPUT, ProgramRun, last_line
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
