"""Workflows of one step: `chat` and `embeddings` are one API request each, admitted by the gateway;
`completion` is one unchanged completion of one policy, for questions whose checker reads text."""

from __future__ import annotations

from collections.abc import Mapping

from loopline.agents.embedding import EmbeddingInput
from loopline.agents.payloads import QuestionPayload
from loopline.agents.records import GenerationOptions, JsonObject, Run, Step
from loopline.agents.roles.chat import ChatOptions
from loopline.agents.roles.completion import CompletionOptions
from loopline.agents.workflows.routing import (
    Handoff,
    Routing,
    finish_given_up_by_role,
    finish_with_answer,
    no_route_error,
    parse_options,
)


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
        """All options of a chat API, which reach the model unchanged."""
        return frozenset(GenerationOptions.model_fields)

    def first(self, run: Run) -> tuple[Handoff, ...]:
        return (Handoff(role="chat", turn=0, payload=QuestionPayload()),)

    def route(self, run: Run, journal: tuple[Step, ...], step: Step) -> Routing:
        if (step.agent, step.decision.kind) == ("chat", "answer"):
            return finish_with_answer(step)
        raise no_route_error(self.name, step)


class EmbeddingsWorkflow:
    """One step. Its options are the inputs to embed."""

    name = "embeddings"
    roles = ("embeddings",)
    default_policies: Mapping[str, str] = {"embeddings": "embeddings"}

    def check_options(self, options: JsonObject) -> JsonObject:
        return parse_options(self.name, EmbeddingInput, options).model_dump(
            mode="json", exclude_defaults=True
        )

    def first(self, run: Run) -> tuple[Handoff, ...]:
        return (Handoff(role="embeddings", turn=0, payload=QuestionPayload()),)

    def route(self, run: Run, journal: tuple[Step, ...], step: Step) -> Routing:
        if (step.agent, step.decision.kind) == ("embeddings", "answer"):
            return finish_with_answer(step)
        raise no_route_error(self.name, step)


class CompletionWorkflow:
    """One step."""

    name = "completion"
    roles = ("completion",)
    default_policies: Mapping[str, str] = {"completion": "llm"}

    def check_options(self, options: JsonObject) -> JsonObject:
        return parse_options(self.name, CompletionOptions, options).model_dump(mode="json")

    def first(self, run: Run) -> tuple[Handoff, ...]:
        return (Handoff(role="completion", turn=0, payload=QuestionPayload()),)

    def route(self, run: Run, journal: tuple[Step, ...], step: Step) -> Routing:
        match step.agent, step.decision.kind:
            case "completion", "answer":
                return finish_with_answer(step)
            case "completion", "give_up":
                return finish_given_up_by_role(step)
            case _:
                raise no_route_error(self.name, step)
