"""Solve one sub-problem: with the small model, whose answers must pass checks, or with the big one,
if the small one could not answer reliably."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from loopline.agents.errors import UnexpectedPayload
from loopline.agents.payloads import EscalationPayload, ExpectedType, SubtaskPayload, has_calculator
from loopline.agents.prompts import Prompt, prompt_for, prompt_in, prompt_set_of
from loopline.agents.protocols import Host
from loopline.agents.records import Decision, JsonObject, Message
from loopline.agents.roles.conversation import (
    Conversation,
    Ending,
    FinalText,
    Handover,
    RequestFailure,
)
from loopline.agents.roles.protocol import StepContext, StepResult
from loopline.agents.router.rungs import LogprobRung
from loopline.agents.tools.calculator import calculate
from loopline.agents.verification import LADDER, Evidence, Rung, Verification, check_rungs

ABOUT_THE_PROBLEM = frozenset({"context_overflow", "content_filter"})
"""Failures that concern this problem and this model: another model may well solve it. Any other
failure (such as a wrong key) is a fault of the deployment, which must not be hidden by calls to the
expensive model."""


_REASON_CHARS = 1_000


def subtask_messages(system: str, problem: str, expected_type: ExpectedType) -> tuple[Message, ...]:
    """A solver's first messages. The problem never enters the system text."""
    return (
        Message(role="system", content=system),
        Message(role="user", content=f"{problem}\nAnswer type: {expected_type}."),
    )


@dataclass(frozen=True, slots=True)
class Solution:
    """How a solver's conversation ended, and the ladder's verdict on its answer."""

    conversation: Conversation
    ending: Ending
    verification: Verification | None
    """`None` if there was no final text to check."""

    @property
    def failure(self) -> RequestFailure | None:
        return self.ending if isinstance(self.ending, RequestFailure) else None

    @property
    def is_problem_failure(self) -> bool:
        """Whether the failure, if there is one, is due to this problem and not to the
        deployment."""
        return self.failure is not None and self.failure.kind in ABOUT_THE_PROBLEM

    @property
    def trouble(self) -> str:
        """Why the answer was not accepted; empty if it was."""
        match self.ending:
            case RequestFailure(kind=kind, message=message):
                return f"{kind}: {message}"
            case FinalText(cut_off=cut_off):
                reason = self.verification.reason if self.verification is not None else ""
                return f"{reason} ({cut_off})" if reason and cut_off else reason
            case Handover():
                return "a solver handed its problem over"
            case _:
                return self.ending.reason

    @property
    def data(self) -> JsonObject:
        """Data of the decision: the verification, and the answer if there is one."""
        if self.verification is None:
            return {"verification": []}
        answer = self.verification.answer
        data: JsonObject = {"verification": self.verification.as_json()}
        return data if answer is None else {**data, "answer": answer}

    def refusal(self, kind: str) -> StepResult:
        """The decision that hands the problem on or gives it up, with the reason."""
        data: JsonObject = {**self.data, "reason": self.trouble[:_REASON_CHARS]}
        return self.conversation.result(Decision(kind=kind, data=data))


async def solve(
    context: StepContext,
    payload: SubtaskPayload | EscalationPayload,
    role: str,
    host: Host,
    rungs: Sequence[Rung] = LADDER,
) -> Solution:
    """Let the host's policy solve the problem with the role's prompt, and check its answer with
    these rungs."""
    prompts = prompt_set_of(context.run)
    system = prompt_for(context.run, prompt_in(prompts, role))
    messages = subtask_messages(system, payload.problem, payload.expected_type)
    tools = (calculate,) if has_calculator(context.run) else ()
    conversation = Conversation(host, messages, tools=tools)
    ending = await conversation.run()
    verification = None
    if isinstance(ending, FinalText):
        evidence = Evidence(
            payload.problem,
            payload.expected_type,
            tuple(conversation.calls),
            boxed=prompts == "mathematics",
            cut_off=ending.cut_off,
        )
        verification = await check_rungs(evidence, host, rungs)
    return Solution(conversation, ending, verification)


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
        if solution.failure is not None and not solution.is_problem_failure:
            return solution.conversation.result(solution.failure.decision)
        if solution.verification is not None and solution.verification.passed:
            return solution.conversation.result(Decision(kind="answer", data=solution.data))
        return solution.refusal("escalate")


class Expert:
    """Decides `answer` {answer, verification}, `give_up` {reason, verification} or `failed`.

    There is no role above the expert, so an answer of the right type is passed on even if its work
    contains a wrong equation; the verdict is still recorded.
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
        if solution.failure is not None and not solution.is_problem_failure:
            return solution.conversation.result(solution.failure.decision)
        if "answer" in solution.data:
            return solution.conversation.result(Decision(kind="answer", data=solution.data))
        return solution.refusal("give_up")
