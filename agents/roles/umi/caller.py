"""Writes the call that the planner asks for, and runs it."""

from __future__ import annotations

from loopline.agents.errors import JournalIncomplete
from loopline.agents.prompts import Prompt, load_prompt
from loopline.agents.protocols import Host
from loopline.agents.roles.conversation import truncation_reason
from loopline.agents.roles.protocol import StepContext, StepResult
from loopline.agents.roles.umi.calling import execute_call, refuse_call
from loopline.agents.roles.umi.history import team_history
from loopline.agents.roles.umi.output import Unreadable, call_schema, read_action
from loopline.agents.roles.umi.settings import options_of, tools_of
from loopline.agents.roles.umi.step import completion, refuse_other_payloads
from loopline.agents.roles.umi.transcript import caller_input, calls_of


class UmiCaller:
    """Decides `call` {name, arguments}, `refused` {text} or `failed`.

    The step's observation is what the tool answered. A text that is not a call, a tool that is not
    offered and arguments that do not fit are answered as a tool would, by an error, so that the
    planner can have another try.
    """

    name = "umi_caller"
    version = 1

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        return (load_prompt("umi_caller"), load_prompt("umi_caller_json"))

    async def step(self, context: StepContext, host: Host) -> StepResult:
        refuse_other_payloads(context, self.name)
        options, tools = options_of(context.run), tools_of(context.run)
        turns = team_history(context.run, context.journal, options.observation_chars)
        if turns[-1].label != "assistant":
            raise JournalIncomplete(
                f"run {context.run.id}: no thought of the planner before turn {context.turn}"
            )
        constrained = options.constrained and bool(tools.specs)
        call = await completion(
            context,
            host,
            self.prompts[1 if constrained else 0],
            caller_input(tools.specs, turns, options.tool_style),
            json_schema=call_schema(tools.specs) if constrained else None,
        )
        action = read_action(call.said)
        if isinstance(action, Unreadable):
            cut = truncation_reason(call)
            return refuse_call(call, f"{action.reason} ({cut})" if cut else action.reason)
        return await execute_call(host, tools, calls_of(context.journal), call, action)
