"""One chat API request as a step: the caller's conversation and tools, the model's answer.

Nothing is added to the caller's messages, and no tool is run: the caller answers the calls.
"""

from __future__ import annotations

from pydantic import Field

from loopline.agents.errors import RequestFailed, UnexpectedPayload
from loopline.agents.payloads import QuestionPayload
from loopline.agents.prompts import Prompt
from loopline.agents.protocols import Host
from loopline.agents.records import (
    MAX_TOOLS,
    Call,
    Candidate,
    Decision,
    GenerationOptions,
    JsonObject,
    Message,
    Record,
    ToolSpec,
)
from loopline.agents.roles.conversation import RequestFailure
from loopline.agents.roles.protocol import StepContext, StepResult


class ChatOptions(Record):
    """Options of the workflow `chat`."""

    tools: tuple[ToolSpec, ...] = Field(default=(), max_length=MAX_TOOLS)
    """The caller's own tools; the model's calls of them are the answer."""
    json_schema: JsonObject | None = None
    """JSON schema that the whole text must match."""
    previous: Call | None = None
    """Call of the session that this conversation continues."""


NO_OPTIONS = ChatOptions()
ENDPOINT_DEFAULTS = GenerationOptions(endpoint_defaults=True)


class Chat:
    """Decides `answer` {answer} or `failed`. The candidate's calls are the choices."""

    name = "chat"
    version = 1

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        return ()

    async def step(self, context: StepContext, host: Host) -> StepResult:
        if not isinstance(context.payload, QuestionPayload):
            raise UnexpectedPayload(
                f"role chat takes no {context.payload.type_name!r}, only the question"
            )
        choices = context.run.options
        options = ChatOptions.model_validate(choices) if choices else NO_OPTIONS
        task = context.run.task
        messages = task.messages or (Message(role="user", content=task.prompt),)
        try:
            calls = await host.complete(
                messages,
                tools=options.tools,
                json_schema=options.json_schema,
                previous=options.previous,
                options=ENDPOINT_DEFAULTS,
            )
        except RequestFailed as error:
            if error.retryable:
                raise
            failure = RequestFailure(error.kind, error.message)
            return StepResult(candidates=(Candidate(),), decision=failure.decision)
        answer = calls[0].said
        return StepResult(
            candidates=(Candidate(calls=calls),),
            decision=Decision(kind="answer", data={"answer": answer}),
        )
