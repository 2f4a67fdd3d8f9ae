"""Thinks about the next step, and decides which role is next."""

from __future__ import annotations

from loopline.agents.prompts import Prompt, load_prompt
from loopline.agents.protocols import Host
from loopline.agents.records import Decision
from loopline.agents.roles.conversation import truncation_reason
from loopline.agents.roles.protocol import StepContext, StepResult
from loopline.agents.roles.umi.history import team_history
from loopline.agents.roles.umi.output import Unreadable, read_plan
from loopline.agents.roles.umi.settings import options_of, tools_of
from loopline.agents.roles.umi.step import completion, refuse_other_payloads, step_result
from loopline.agents.roles.umi.transcript import planner_input


class UmiPlanner:
    """Decides `call` {rationale}, `conclude` {rationale}, `give_up` {rationale, reason} or
    `failed`."""

    name = "umi_planner"
    version = 1

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        return (load_prompt("umi_planner"),)

    async def step(self, context: StepContext, host: Host) -> StepResult:
        refuse_other_payloads(context, self.name)
        options = options_of(context.run)
        turns = team_history(context.run, context.journal, options.observation_chars)
        text = planner_input(tools_of(context.run).specs, turns, options.tool_style)
        call = await completion(context, host, self.prompts[0], text)
        plan = read_plan(call.said)
        if isinstance(plan, Unreadable):
            cut = truncation_reason(call)
            reason = f"{plan.reason} ({cut})" if cut else plan.reason
            return step_result(
                call, Decision(kind="give_up", data={"rationale": "", "reason": reason})
            )
        if plan.next == "give_up":
            reason = " ".join(plan.rationale.split()) or "the planner gave no reason"
            data = {"rationale": plan.rationale, "reason": reason}
            return step_result(call, Decision(kind="give_up", data={**data}))
        return step_result(call, Decision(kind=plan.next, data={"rationale": plan.rationale}))
