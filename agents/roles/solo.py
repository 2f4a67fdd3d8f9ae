"""One model alone: the baseline that any team has to beat."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from loopline.agents.errors import UnexpectedPayload
from loopline.agents.payloads import QuestionPayload, has_calculator
from loopline.agents.prompts import Prompt, prompt_for, prompt_in, prompt_set_of
from loopline.agents.protocols import Host
from loopline.agents.records import Message, Run
from loopline.agents.roles.conversation import (
    CallableTool,
    Conversation,
    Ending,
    conversation_of,
)
from loopline.agents.roles.escalation import Escalation
from loopline.agents.roles.final_text import boxed_result, text_result
from loopline.agents.roles.protocol import StepContext, StepResult
from loopline.agents.tools.calculator import calculate


def question_conversation(
    role: str, context: StepContext, host: Host, escalation: Escalation | None = None
) -> tuple[Sequence[Message], Conversation, Callable[[Conversation, Ending], StepResult]]:
    """The run's question under the prompts of `solo`: the conversation that starts with it, and the
    function that turns its ending into a result. Raises `UnexpectedPayload`."""
    if not isinstance(context.payload, QuestionPayload):
        raise UnexpectedPayload(
            f"role {role} takes no {context.payload.type_name!r}, only the question"
        )
    messages, tools = question_opening(context.run)
    result_of = boxed_result if prompt_set_of(context.run) == "mathematics" else text_result
    conversation = Conversation(host, messages, tools=tools, escalation=escalation)
    return messages, conversation, result_of


def question_opening(run: Run) -> tuple[list[Message], tuple[CallableTool, ...]]:
    """The first messages for a model that gets the whole question, and its tools."""
    messages = conversation_of(run.task, prompt_for(run, prompt_in(prompt_set_of(run), "solo")))
    return messages, (calculate,) if has_calculator(run) else ()


class Solo:
    """Decides `answer` {answer}, `give_up` {reason} or `failed`. With the mathematical prompts, the
    answer is the content of the last box, next to `boxed`."""

    name = "solo"
    version = 1

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        return (prompt_in("general", "solo"),)

    async def step(self, context: StepContext, host: Host) -> StepResult:
        _, conversation, result_of = question_conversation(self.name, context, host)
        return result_of(conversation, await conversation.run())
