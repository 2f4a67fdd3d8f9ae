"""Runs a call that a model wrote, or says why it can't be run."""

from __future__ import annotations

from collections.abc import Sequence

from loopline.agents.protocols import Host
from loopline.agents.records import Call, Decision, JsonObject, ToolCall
from loopline.agents.roles.protocol import StepResult
from loopline.agents.roles.umi.output import Action
from loopline.agents.roles.umi.step import step_result
from loopline.agents.tools.offered import OfferedTools

_KEPT_CHARS = 1_000
"""Most characters of a text that is not a call."""


async def execute_call(
    host: Host,
    tools: OfferedTools,
    earlier: Sequence[ToolCall],
    call: Call,
    action: Action,
    *,
    rationale: str | None = None,
) -> StepResult:
    """Run a call. Decides `call` {name, arguments}, with the `rationale` where the same text holds
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
    """Refuse a call. Decides `refused` {text}; the error is what the model observes."""
    decision = Decision(kind="refused", data={"text": call.said[:_KEPT_CHARS]})
    return step_result(call, decision, {"output": {"error": error}})
