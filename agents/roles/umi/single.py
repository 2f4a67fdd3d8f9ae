"""One model that does the work of all three roles: thinks, calls and answers."""

from __future__ import annotations

from loopline.agents.prompts import Prompt, load_prompt
from loopline.agents.protocols import Host
from loopline.agents.records import Call, Decision
from loopline.agents.roles.conversation import truncation_reason
from loopline.agents.roles.protocol import StepContext, StepResult
from loopline.agents.roles.umi.backbone import FinalTurn, backbone_input, read_step
from loopline.agents.roles.umi.history import single_history
from loopline.agents.roles.umi.output import Unreadable
from loopline.agents.roles.umi.roles import execute_call, refuse_call
from loopline.agents.roles.umi.settings import options_of, tools_of
from loopline.agents.roles.umi.step import completion, refuse_other_payloads, step_result
from loopline.agents.roles.umi.transcript import calls_of


class UmiSingle:
    """Decides `call` {rationale, name, arguments}, `refused` {text}, `answer` {rationale,
    answer}, `give_up` {rationale, reason} or `failed`.

    An error in a call comes back as its observation, as for the caller of `umi`. A text that
    neither calls nor concludes gives up, like a planner that names no next role.
    """

    name = "umi_single"
    version = 1

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        return (load_prompt("umi_backbone"),)

    async def step(self, context: StepContext, host: Host) -> StepResult:
        refuse_other_payloads(context, self.name)
        options, tools = options_of(context.run), tools_of(context.run)
        turns = single_history(context.run, context.journal, options.observation_chars)
        text = backbone_input(tools.specs, turns, options.tool_style)
        call = await completion(context, host, self.prompts[0], text)
        outcome = read_step(call.said)
        if isinstance(outcome, Unreadable):
            cut = truncation_reason(call)
            return _give_up(call, "", f"{outcome.reason} ({cut})" if cut else outcome.reason)
        if isinstance(outcome, FinalTurn):
            return _conclude(call, outcome)
        if _calls_so_far(context) >= options.max_calls:
            limit = f"wants another call after {options.max_calls}, which is the limit"
            return _give_up(call, outcome.rationale, limit)
        if isinstance(outcome.call, Unreadable):
            cut = truncation_reason(call)
            reason = outcome.call.reason
            return refuse_call(call, f"{reason} ({cut})" if cut else reason)
        earlier = calls_of(context.journal)
        return await execute_call(
            host, tools, earlier, call, outcome.call, rationale=outcome.rationale
        )


def _conclude(call: Call, conclusion: FinalTurn) -> StepResult:
    cut = truncation_reason(call)
    if cut is not None:
        # The part that the answer lacks may be the requested one.
        return _give_up(call, conclusion.rationale, cut)
    if conclusion.answer is None:
        reason = " ".join(conclusion.rationale.split()) or "the model gave no reason"
        return _give_up(call, conclusion.rationale, reason)
    data = {"rationale": conclusion.rationale, "answer": conclusion.answer}
    return step_result(call, Decision(kind="answer", data={**data}))


def _give_up(call: Call, rationale: str, reason: str) -> StepResult:
    data = {"rationale": rationale, "reason": reason}
    return step_result(call, Decision(kind="give_up", data={**data}))


def _calls_so_far(context: StepContext) -> int:
    """Count the calls, including refused ones."""
    return sum(step.decision.kind in ("call", "refused") for step in context.journal)
