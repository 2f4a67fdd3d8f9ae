"""One embeddings request as a step."""

from __future__ import annotations

from loopline.agents.embedding import EmbeddingInput, EmbeddingVectors
from loopline.agents.errors import RequestFailed, UnexpectedPayload
from loopline.agents.payloads import QuestionPayload
from loopline.agents.prompts import Prompt
from loopline.agents.protocols import Host
from loopline.agents.records import Candidate, Decision
from loopline.agents.roles.conversation import RequestFailure
from loopline.agents.roles.protocol import StepContext, StepResult


class Embeddings:
    """Decides `answer` {answer}, which states the number of vectors, or `failed`. The vectors are
    the text of the only call."""

    name = "embeddings"
    version = 1
    prompts: tuple[Prompt, ...] = ()

    async def step(self, context: StepContext, host: Host) -> StepResult:
        if not isinstance(context.payload, QuestionPayload):
            raise UnexpectedPayload(
                f"role {self.name} takes no {context.payload.type_name!r}, only the question"
            )
        wanted = EmbeddingInput.model_validate(context.run.options)
        try:
            calls = await host.complete([wanted.message])
        except RequestFailed as error:
            if error.retryable:
                raise
            failure = RequestFailure(error.kind, error.message)
            return StepResult(candidates=(Candidate(),), decision=failure.decision)
        vectors = EmbeddingVectors.model_validate_json(calls[0].text)
        return StepResult(
            candidates=(Candidate(calls=calls),),
            decision=Decision(kind="answer", data={"answer": vectors.shown}),
        )
