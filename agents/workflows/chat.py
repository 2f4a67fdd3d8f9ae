"""`chat`: one request of a chat API, answered by one policy. The gateway admits one for each
request."""

from __future__ import annotations

from collections.abc import Mapping

from loopline.agents.payloads import QuestionPayload
from loopline.agents.records import GenerationOptions, JsonObject, Run, Step
from loopline.agents.roles.chat import ChatOptions
from loopline.agents.workflows.endings import finish_with_answer, no_route_error
from loopline.agents.workflows.routing import Handoff, Routing, parse_options


class ChatWorkflow:
    """One step."""

    name = "chat"
    roles = ("chat",)
    default_policies: Mapping[str, str] = {"chat": "llm"}

    def check_options(self, options: JsonObject) -> JsonObject:
        if not options:
            return {}
        return parse_options(self.name, ChatOptions, options).model_dump(
            mode="json", exclude_defaults=True
        )

    @property
    def honoured(self) -> frozenset[str]:
        """All options of a chat API: nothing stands between the caller and the model."""
        return frozenset(GenerationOptions.model_fields)

    def first(self, run: Run) -> tuple[Handoff, ...]:
        return (Handoff(role="chat", turn=0, payload=QuestionPayload()),)

    def route(self, run: Run, journal: tuple[Step, ...], step: Step) -> Routing:
        if (step.agent, step.decision.kind) == ("chat", "answer"):
            return finish_with_answer(step)
        raise no_route_error(self.name, step)
