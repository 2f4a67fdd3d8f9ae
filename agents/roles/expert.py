"""The big model on a sub-problem that the small one could not answer reliably."""

from __future__ import annotations

from loopline.agents.errors import UnexpectedPayload
from loopline.agents.payloads import EscalationPayload, SubtaskPayload
from loopline.agents.prompts import Prompt, prompt_in
from loopline.agents.protocols import Host
from loopline.agents.records import Decision, JsonObject
from loopline.agents.roles.protocol import StepContext, StepResult
from loopline.agents.roles.subtask import solve

_REASON_CHARS = 1_000


class Expert:
    """Decides `answer` {answer, verification}, `give_up` {reason, verification} or `failed`.

    There is no role above the expert. So an answer of the right type is passed on even if its
    working has a wrong equation; the verdict is still recorded.
    """

    name = "expert"
    version = 1

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        return (prompt_in("general", "expert"),)

    async def step(self, context: StepContext, host: Host) -> StepResult:
        payload = context.payload
        if not isinstance(payload, EscalationPayload | SubtaskPayload):
            raise UnexpectedPayload(f"role expert takes no {payload.type_name!r}, only a sub-task")
        solution = await solve(context, payload, self.name, host)
        conversation, verification = solution.conversation, solution.verification
        if solution.failure is not None and not solution.is_problem_failure:
            return conversation.result(solution.failure.decision)
        data: JsonObject = {"verification": verification.as_json() if verification else []}
        if verification is not None and verification.answer is not None:
            data["answer"] = verification.answer
            return conversation.result(Decision(kind="answer", data=data))
        data["reason"] = solution.trouble[:_REASON_CHARS]
        return conversation.result(Decision(kind="give_up", data=data))
