"""The planner thinks about the next step and decides which role is next; the caller writes the call
that the planner requests, and runs it; the summarizer answers the user from the observations."""

from __future__ import annotations

from collections.abc import Sequence

from loopline.agents.errors import JournalIncomplete
from loopline.agents.prompts import Prompt, load_prompt
from loopline.agents.protocols import Host
from loopline.agents.records import Call, Decision, JsonObject, ToolCall
from loopline.agents.roles.conversation import truncation_reason
from loopline.agents.roles.protocol import StepContext, StepResult
from loopline.agents.roles.umi.history import team_history
from loopline.agents.roles.umi.output import (
    Action,
    Unreadable,
    call_schema,
    read_action,
    read_answer,
    read_plan,
)
from loopline.agents.roles.umi.settings import options_of, tools_of
from loopline.agents.roles.umi.step import completion, refuse_other_payloads, step_result
from loopline.agents.roles.umi.transcript import (
    caller_input,
    calls_of,
    planner_input,
    summarizer_input,
)
from loopline.agents.tools.offered import OfferedTools

_KEPT_CHARS = 1_000
"""Maximum number of characters of a text that is not a call."""


async def execute_call(
    host: Host,
    tools: OfferedTools,
    earlier: Sequence[ToolCall],
    call: Call,
    action: Action,
    *,
    rationale: str | None = None,
) -> StepResult:
    """Run a call. Decides `call` {name, arguments}, with the `rationale` if the same text contains
    it; or `refused` for a tool that is not offered."""
    request = tools.request(action.name, action.arguments, earlier)
    if request is None:
        tool_names = ", ".join(spec.name for spec in tools.specs) or "none"
        return refuse_call(
            call, f"there is no tool {action.name[:64]!r}; the tools are: {tool_names}"
        )
    output = await host.call_tool(request.tool, request.arguments)
    extra: JsonObject = {} if rationale is None else {"rationale": rationale}
    data: JsonObject = {**extra, "name": action.name, "arguments": action.arguments}
    entry: JsonObject = {"tool": request.tool, "arguments": request.arguments, "output": output}
    return step_result(call, Decision(kind="call", data=data), entry)


def refuse_call(call: Call, error: str) -> StepResult:
    """Refuse a call. Decides `refused` {text}; the model observes the error."""
    decision = Decision(kind="refused", data={"text": call.said[:_KEPT_CHARS]})
    return step_result(call, decision, {"output": {"error": error}})


class UmiCaller:
    """Decides `call` {name, arguments}, `refused` {text} or `failed`.

    The step's observation is the tool's answer. A text that is not a call, a tool that is not
    offered and arguments that do not match get an error, as from a tool, so the planner can try
    again.
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


class UmiSummarizer:
    """Decides `answer` {answer}, `give_up` {reason} or `failed`. A truncated answer does not count:
    the missing part may be the requested one. If the run's caller limited its length, it counts,
    with `cut_off`.
    """

    name = "umi_summarizer"
    version = 1

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        return (load_prompt("umi_summarizer"),)

    async def step(self, context: StepContext, host: Host) -> StepResult:
        refuse_other_payloads(context, self.name)
        options = options_of(context.run)
        turns = team_history(context.run, context.journal, options.observation_chars)
        call = await completion(context, host, self.prompts[0], summarizer_input(turns))
        reason = truncation_reason(call)
        answer = read_answer(call.said)
        generation = context.run.generation
        wanted_short = generation is not None and generation.max_tokens is not None
        if answer and (reason is None or wanted_short):
            cut: JsonObject = {} if reason is None else {"cut_off": reason}
            return step_result(call, Decision(kind="answer", data={"answer": answer, **cut}))
        data = {"reason": reason or "the summarizer wrote no answer"}
        return step_result(call, Decision(kind="give_up", data={**data}))
