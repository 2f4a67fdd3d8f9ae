"""Answers with one completion, unchanged: no tools, no history."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from loopline.agents.prompts import Prompt, load_prompt, prompt_for
from loopline.agents.protocols import Host
from loopline.agents.records import Decision
from loopline.agents.roles.conversation import conversation_of
from loopline.agents.roles.protocol import StepContext, StepResult
from loopline.agents.roles.umi.step import (
    refuse_other_payloads,
    single_completion,
    step_result,
)

PromptName = Literal["function_calls", "api_call", "prompt_writer"]


class CompletionOptions(BaseModel):
    """Options of the workflow `completion`."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    prompt: PromptName
    """Name of the system prompt before the question."""


class Completion:
    """Decides `answer` {answer}, `give_up` {reason} for an empty text, or `failed`."""

    name = "completion"
    version = 1

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        return (
            load_prompt("function_calls"),
            load_prompt("api_call"),
            load_prompt("prompt_writer"),
        )

    async def step(self, context: StepContext, host: Host) -> StepResult:
        refuse_other_payloads(context, self.name)
        options = CompletionOptions.model_validate(context.run.options)
        run = context.run
        system = prompt_for(run, load_prompt(options.prompt))
        call = await single_completion(host, conversation_of(run.task, system))
        if not call.said.strip():
            return step_result(call, Decision(kind="give_up", data={"reason": "the text is empty"}))
        return step_result(call, Decision(kind="answer", data={"answer": call.said}))
