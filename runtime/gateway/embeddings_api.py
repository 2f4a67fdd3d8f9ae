"""`POST /v1/embeddings`, as in OpenAI's API. A request is a run of one step, which contains its
vectors, so it is admitted, limited, paid for and answered once, like any other call."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator
from starlette.requests import Request
from starlette.responses import Response

from loopline.agents.embedding import (
    MAX_DIMENSIONS,
    MAX_INPUTS,
    EmbeddingInput,
    EmbeddingVectors,
)
from loopline.agents.records import GenerationOptions, Trajectory
from loopline.agents.roles.chat import ChatOptions
from loopline.runtime.gateway import idempotency, sessions
from loopline.runtime.gateway.chat_response import require_answer, usage_of
from loopline.runtime.gateway.errors import ApiError, field_error, validated
from loopline.runtime.gateway.http import (
    Http,
    header,
    json_response,
    run_headers,
    while_connected,
)
from loopline.runtime.gateway.http_spans import note_joined, trace_tags
from loopline.runtime.gateway.service import Question, Service
from loopline.runtime.gateway.wire_model import WireModel

TokenId = Annotated[int, Field(ge=0, lt=2**31)]


class EmbeddingsRequest(WireModel):
    """Body of a request. An unknown field is refused by name."""

    model: str = Field(min_length=1, max_length=256)
    input: str | list[str] | list[TokenId] | list[list[TokenId]]
    """A text, the token ids of a text, or a list of either."""
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Annotated[int, Field(ge=1, le=MAX_DIMENSIONS)] | None = None
    user: str | None = None
    """Id of the caller's end user; no answer depends on it."""

    @model_validator(mode="after")
    def _check_input(self) -> Self:
        if not self.inputs or not all(self.inputs):
            raise field_error("input", "one or more inputs are needed, and none may be empty")
        if len(self.inputs) > MAX_INPUTS:
            raise field_error("input", f"at most {MAX_INPUTS} inputs in a request")
        return self

    @property
    def inputs(self) -> tuple[str, ...] | tuple[tuple[int, ...], ...]:
        """Return the inputs, one per vector."""
        if isinstance(self.input, str):
            return (self.input,)
        texts = tuple(item for item in self.input if isinstance(item, str))
        if texts:
            return texts
        ids = tuple(item for item in self.input if isinstance(item, int))
        return (ids,) if ids else tuple(tuple(i) for i in self.input if isinstance(i, list))


class EmbeddingsApi:
    """Handler of the route."""

    def __init__(self, service: Service, http: Http) -> None:
        self._service = service
        self._http = http

    async def create(self, request: Request) -> Response:
        caller = await self._http.caller(request)
        if not self._service.models.embedding:
            raise ApiError(
                404,
                "No pool of this deployment computes embeddings: a [models] table of an endpoint"
                " needs embeddings = true.",
                code="embeddings_not_supported",
            )
        body = await self._http.body(request)
        params = validated(EmbeddingsRequest, body, strict=True)
        key = header(request, idempotency.HEADER)
        admitted = await self._service.admit(
            Question(
                caller=caller,
                model=params.model,
                messages=(),
                options=ChatOptions(),
                generation=GenerationOptions(),
                tags={},
                stream=False,
                session=sessions.session_of(
                    request.path_params.get("session"),
                    header(request, sessions.HEADER),
                    caller.id,
                ),
                idempotency_key=key,
                body_digest="" if key is None else idempotency.digest_of("embeddings", body),
                trace_tags=partial(trace_tags, request),
                embedding=EmbeddingInput(input=params.inputs, dimensions=params.dimensions),
            )
        )
        note_joined(request, admitted.run.id)
        in_base64 = params.encoding_format == "base64"

        def response_of(trajectory: Trajectory) -> Response:
            return json_response(
                embeddings_body(trajectory, params.model, in_base64=in_base64),
                headers=run_headers(admitted),
            )

        response = await while_connected(request, self._service.wait(admitted, response_of))
        return Response(status_code=499) if response is None else response  # 499: client gone


def embeddings_body(trajectory: Trajectory, model: str, *, in_base64: bool) -> dict[str, Any]:
    """Raises `ApiError` for a run that ended without vectors."""
    require_answer(trajectory)
    [call] = [call for step in trajectory.steps for call in step.calls]
    vectors = EmbeddingVectors.model_validate_json(call.text)
    usage = usage_of([call.usage])
    return {
        "object": "list",
        "data": [
            {"object": "embedding", "index": index, "embedding": vector}
            for index, vector in enumerate(vectors.vectors if in_base64 else vectors.floats())
        ],
        "model": model,
        "usage": {name: usage[name] for name in ("prompt_tokens", "total_tokens")},
    }
