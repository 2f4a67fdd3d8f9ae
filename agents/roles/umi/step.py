"""Code shared by the steps of the three roles, each of which makes one completion."""

from __future__ import annotations

from collections.abc import Sequence

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
    """The policy's completion of an input, under the role's prompt and the caller's system
    messages. Raises `RequestFailed` without a completion."""
    further = [turn.content for turn in context.run.task.messages if turn.role == "system"]
    system = "\n\n".join([prompt_for(context.run, prompt), *filter(None, further)])
    messages = (Message(role="system", content=system), Message(role="user", content=text))
    return await single_completion(host, messages, json_schema=json_schema)


async def single_completion(
    host: Host, messages: Sequence[Message], *, json_schema: JsonObject | None = None
) -> Call:
    """The policy's single completion of a conversation. Raises `RequestFailed` without a
    completion."""
    calls = await host.complete(messages, json_schema=json_schema)
    if len(calls) != 1:
        raise MalformedModelOutput(f"one completion was asked for, {len(calls)} came back")
    return calls[0]


def step_result(call: Call, decision: Decision, entry: JsonObject | None = None) -> StepResult:
    """The step's result; `entry` is the observation of a call, in the format of `conversation`."""
    action: JsonObject = {"kind": decision.kind, **decision.data}
    return StepResult(
        candidates=(Candidate(calls=(call,), action=action),),
        decision=decision,
        observation={"turns": [[entry] if entry is not None else []]},
    )


def refuse_other_payloads(context: StepContext, role: str) -> None:
    """Raise `UnexpectedPayload` unless the payload is the question: the journal has the rest."""
    if not isinstance(context.payload, QuestionPayload):
        raise UnexpectedPayload(
            f"role {role} takes no {context.payload.type_name!r}, only the question"
        )
