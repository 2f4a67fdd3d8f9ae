"""What the steps of the three roles have in common: one completion each."""

from __future__ import annotations

from loopline.agents.errors import MalformedModelOutput, UnexpectedPayload
from loopline.agents.payloads import QuestionPayload
from loopline.agents.prompts import Prompt, prompt_for
from loopline.agents.protocols import Host
from loopline.agents.records import Call, Candidate, Decision, JsonObject, Message
from loopline.agents.roles.protocol import StepContext, StepResult


async def completion(
    context: StepContext,
    host: Host,
    prompt: Prompt,
    text: str,
    *,
    json_schema: JsonObject | None = None,
) -> Call:
    """The policy's completion of an input. Raises `RequestFailed` if there is none."""
    messages = (
        Message(role="system", content=prompt_for(context.run, prompt)),
        Message(role="user", content=text),
    )
    calls = await host.complete(messages, json_schema=json_schema)
    if len(calls) != 1:
        raise MalformedModelOutput(f"one completion was asked for, {len(calls)} came back")
    return calls[0]


def step_result(call: Call, decision: Decision, entry: JsonObject | None = None) -> StepResult:
    """The step's result; `entry` is the observation of a call, in the form of `conversation`."""
    action: JsonObject = {"kind": decision.kind, **decision.data}
    return StepResult(
        candidates=(Candidate(calls=(call,), action=action),),
        decision=decision,
        observation={"turns": [[entry] if entry is not None else []]},
    )


def refuse_other_payloads(context: StepContext, role: str) -> None:
    """Everything is in the journal. Raises `UnexpectedPayload` for what says more."""
    if not isinstance(context.payload, QuestionPayload):
        raise UnexpectedPayload(
            f"role {role} takes no {context.payload.type_name!r}, only the question"
        )
