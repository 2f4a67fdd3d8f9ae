"""One model on its own: the baseline that any team has to beat."""

from __future__ import annotations

from loopline.agents.errors import UnexpectedPayload
from loopline.agents.payloads import QuestionPayload, has_calculator
from loopline.agents.prompts import Prompt, load_prompt, prompt_for
from loopline.agents.protocols import Host
from loopline.agents.roles.conversation import Conversation, opening_messages
from loopline.agents.roles.final_text import final_result
from loopline.agents.roles.protocol import StepContext, StepResult
from loopline.agents.tools.calculator import calculate


class Solo:
    """Decides `answer` {answer, boxed}, `give_up` {reason} or `failed`."""

    name = "solo"
    version = 1

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        return (load_prompt("solo"),)

    async def step(self, context: StepContext, host: Host) -> StepResult:
        if not isinstance(context.payload, QuestionPayload):
            raise UnexpectedPayload(
                f"role solo takes no {context.payload.type_name!r}, only the question"
            )
        messages = opening_messages(prompt_for(context.run, self.prompts[0]), context.run.task)
        tools = (calculate,) if has_calculator(context.run) else ()
        conversation = Conversation(host, messages, tools=tools)
        return final_result(conversation, await conversation.run())
