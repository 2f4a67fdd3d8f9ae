"""`embeddings`: one request for vectors, answered by a pool whose model makes them. The gateway
admits one for each request."""

from __future__ import annotations

from collections.abc import Mapping

from loopline.agents.embedding import EmbeddingInput
from loopline.agents.payloads import QuestionPayload
from loopline.agents.records import JsonObject, Run, Step
from loopline.agents.workflows.endings import finish_with_answer, no_route_error
from loopline.agents.workflows.routing import Handoff, Routing, parse_options


class EmbeddingsWorkflow:
    """One step. Its options are what is to be embedded."""

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
