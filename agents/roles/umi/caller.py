"""Writes the call that the planner asks for, and has it carried out."""

from __future__ import annotations

from agents.errors import JournalIncomplete
from agents.prompts import Prompt, load_prompt
from agents.protocols import Host
from agents.records import Call, Decision, JsonObject
from agents.roles.conversation import cut_off
from agents.roles.protocol import StepContext, StepResult
from agents.roles.umi.output import Action, Unreadable, call_schema, read_action
from agents.roles.umi.settings import options_of, tools_of
from agents.roles.umi.step import completion, refuse_other_payloads, result
from agents.roles.umi.transcript import caller_input, calls_of, turns_of
from agents.tools.offered import OfferedTools

_KEPT_CHARS = 1_000
"""Of a text that is no call."""


class UmiCaller:
    """Decides `call` {name, arguments}, `refused` {text} or `failed`.

    The step's observation is what the tool answered. A text that is no call, a tool that is not
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
        turns = turns_of(context.run, context.journal, options.observation_chars)
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
        action = read_action(call.text)
        if isinstance(action, Unreadable):
            cut = cut_off(call)
            return _refused(call, f"{action.reason} ({cut})" if cut else action.reason)
        return await _carried_out(context, host, tools, call, action)


async def _carried_out(
    context: StepContext, host: Host, tools: OfferedTools, call: Call, action: Action
) -> StepResult:
    request = tools.request(action.name, action.arguments, calls_of(context.journal))
    if request is None:
        known = ", ".join(spec.name for spec in tools.specs) or "none"
        return _refused(call, f"there is no tool {action.name[:64]!r}; the tools are: {known}")
    output = await host.call_tool(request.tool, request.arguments)
    decision = Decision(kind="call", data={"name": action.name, "arguments": action.arguments})
    entry: JsonObject = {"tool": request.tool, "arguments": request.arguments, "output": output}
    return result(call, decision, entry)


def _refused(call: Call, error: str) -> StepResult:
    decision = Decision(kind="refused", data={"text": call.text[:_KEPT_CHARS]})
    return result(call, decision, {"output": {"error": error}})
