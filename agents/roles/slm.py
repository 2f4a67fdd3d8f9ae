"""The small model: solves one sub-problem, and lets only checked answers through."""

from __future__ import annotations

from loopline.agents.errors import UnexpectedPayload
from loopline.agents.payloads import SubtaskPayload
from loopline.agents.prompts import Prompt, prompt_in
from loopline.agents.protocols import Host
from loopline.agents.records import Decision, JsonObject
from loopline.agents.roles.protocol import StepContext, StepResult
from loopline.agents.roles.subtask import solve
from loopline.agents.router.rungs import LogprobRung
from loopline.agents.verification import LADDER

_REASON_CHARS = 1_000


class SmallSolver:
    """Decides `answer` {answer, verification}, `escalate` {reason, verification} or `failed`."""

    name = "slm"
    version = 1

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        return (prompt_in("general", "slm"),)

    async def step(self, context: StepContext, host: Host) -> StepResult:
        payload = context.payload
        if not isinstance(payload, SubtaskPayload):
            raise UnexpectedPayload(f"role slm takes no {payload.type_name!r}, only a sub-task")
        least = context.run.options.get("min_logprob")
        rungs = (*LADDER, LogprobRung(least)) if isinstance(least, float | int) else LADDER
        solution = await solve(context, payload, self.name, host, rungs)
        conversation, verification = solution.conversation, solution.verification
        if solution.failure is not None and not solution.is_problem_failure:
            return conversation.result(solution.failure.decision)
        data: JsonObject = {"verification": verification.as_json() if verification else []}
        if verification is not None and verification.answer is not None:
            data["answer"] = verification.answer
        if verification is not None and verification.passed:
            return conversation.result(Decision(kind="answer", data=data))
        data["reason"] = solution.trouble[:_REASON_CHARS]
        return conversation.result(Decision(kind="escalate", data=data))
