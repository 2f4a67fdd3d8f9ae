"""The gateway's OpenAPI document, generated from the models of its requests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from loopline.runtime import __version__
from loopline.runtime.gateway.chat_request import ChatRequest
from loopline.runtime.gateway.compaction import CompactRequest
from loopline.runtime.gateway.embeddings_api import EmbeddingsRequest
from loopline.runtime.gateway.responses_request import ResponseRequest
from loopline.runtime.gateway.runs_request import CreateRun, Feedback, ForkRun, ListedRun
from loopline.runtime.gateway.waiting_api import DecideApproval, SendSignal

_ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
        }
    },
}
_RUN = {
    "type": "object",
    "required": ["object", "id", "workflow", "status", "steps", "usage"],
    "properties": {
        "object": {"const": "run"},
        "id": {"type": "string"},
        "workflow": {"type": "string"},
        "status": {"type": "string"},
        "answer": {"type": ["string", "null"]},
        "reason": {"type": ["string", "null"]},
        "usage": {"type": "object"},
        "steps": {"type": "array", "items": {"type": "object"}},
    },
}
_ANY = {"type": "object"}


@dataclass(frozen=True)
class _Operation:
    method: str
    path: str
    summary: str
    status: int = 200
    body: type[BaseModel] | None = None
    answer: Any = None
    query: tuple[tuple[str, dict[str, Any]], ...] = ()
    headers: tuple[str, ...] = ()
    errors: tuple[int, ...] = ()
    events: bool = False


_OPERATIONS = (
    _Operation(
        "post", "/v1/chat/completions", "Answer a conversation", body=ChatRequest, answer=_ANY,
        headers=("Idempotency-Key", "Last-Event-ID", "X-Loopline-Session"),
        errors=(404, 409, 413, 422, 502, 504),
    ),
    _Operation(
        "get", "/v1/chat/completions/{id}", "Read an earlier completion",
        answer=_ANY, errors=(404, 409, 422, 502, 504),
        query=(("stream", {"type": "string"}), ("starting_after", {"type": "string"})),
    ),
    _Operation(
        "post", "/v1/responses", "Answer a conversation of items", body=ResponseRequest,
        answer=_ANY, headers=("Idempotency-Key", "Last-Event-ID", "X-Loopline-Session"),
        errors=(404, 409, 413, 422, 502, 504),
    ),
    _Operation(
        "post", "/v1/responses/compact", "Summarise a conversation of items", body=CompactRequest,
        answer=_ANY, headers=("Idempotency-Key", "X-Loopline-Session"),
        errors=(404, 409, 413, 422, 502, 504),
    ),
    _Operation(
        "get", "/v1/responses/{id}", "Read a response, or its events after a number",
        answer=_ANY, errors=(404,), headers=("Last-Event-ID",),
        query=(("stream", {"type": "string"}), ("starting_after", {"type": "integer"})),
    ),
    _Operation("delete", "/v1/responses/{id}", "Delete a response", answer=_ANY, errors=(404,)),
    _Operation("post", "/v1/responses/{id}/cancel", "End a response", answer=_ANY, errors=(404,)),
    _Operation(
        "get", "/v1/responses/{id}/input_items", "List what a response answers", answer=_ANY,
        errors=(404,),
        query=(
            ("limit", {"type": "integer", "minimum": 1, "maximum": 100}),
            ("order", {"enum": ["asc", "desc"]}),
            ("after", {"type": "string"}),
        ),
    ),
    _Operation(
        "post", "/v1/embeddings", "Embed texts", body=EmbeddingsRequest, answer=_ANY,
        headers=("Idempotency-Key", "X-Loopline-Session"), errors=(404, 409, 413, 422, 502, 504),
    ),
    _Operation("get", "/v1/models", "List models", answer=_ANY),
    _Operation("get", "/v1/models/{id}", "Describe a model", answer=_ANY, errors=(404,)),
    _Operation(
        "post", "/v1/runs", "Start a run of a workflow", 202, CreateRun, _RUN,
        headers=("Idempotency-Key",), errors=(409, 413),
    ),
    _Operation(
        "get", "/v1/runs", "List the caller's newest runs",
        answer={
            "type": "object",
            "properties": {"data": {"type": "array", "items": {"$ref": "ListedRun"}}},
        },
        query=(
            ("limit", {"type": "integer", "minimum": 1, "maximum": 100}),
            ("status", {"type": "string"}),
            ("workflow", {"type": "string"}),
            ("before", {"type": "string"}),
            ("tag", {"type": "array", "items": {"type": "string"}}),
        ),
    ),
    _Operation("get", "/v1/runs/{id}", "Read a run and its steps", answer=_RUN, errors=(404,)),
    _Operation(
        "get", "/v1/runs/{id}/events", "Follow a run, starting after an event",
        query=(("after", {"type": "string"}),), headers=("Last-Event-ID",), errors=(404,),
        events=True,
    ),
    _Operation("post", "/v1/runs/{id}/cancel", "End a run", answer=_RUN, errors=(404,)),
    _Operation(
        "post", "/v1/runs/{id}/fork", "Fork a run: repeat a turn in a new run", 202, ForkRun,
        _RUN, headers=("Idempotency-Key",), errors=(404, 409, 413),
    ),
    _Operation(
        "post", "/v1/runs/{id}/feedback", "Reward a run after the fact", 202, Feedback, _ANY,
        errors=(404, 409, 413),
    ),
    _Operation(
        "post", "/v1/runs/{id}/signals/{name}", "Send a run the signal that it waits for", 202,
        SendSignal, _ANY, errors=(404, 409, 413),
    ),
    _Operation("get", "/v1/approvals", "List requests that wait for approval", answer=_ANY),
    _Operation(
        "post", "/v1/approvals/{id}", "Approve or deny a request", body=DecideApproval,
        answer=_ANY, errors=(404, 409, 413),
    ),
    _Operation(
        "post", "/v1/sessions/{session}/feedback", "Reward a session after the fact", 202,
        Feedback, _ANY, errors=(409, 413),
    ),
)  # fmt: skip


def openapi_document() -> dict[str, Any]:
    """Return the document in OpenAPI 3.1 format."""
    models = [op.body for op in _OPERATIONS if op.body is not None] + [ListedRun]
    _, definitions = models_json_schema(
        [(model, "validation") for model in dict.fromkeys(models)],
        ref_template="#/components/schemas/{model}",
    )
    paths: dict[str, Any] = {}
    for operation in _OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method] = _described(operation)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Loopline", "version": __version__},
        "security": [{"key": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
            "schemas": {**definitions.get("$defs", {}), "Error": _ERROR},
        },
    }


def _described(operation: _Operation) -> dict[str, Any]:
    names = [part[1:-1] for part in operation.path.split("/") if part.startswith("{")]
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in names
    ]
    parameters += [
        {"name": name, "in": "query", "schema": schema} for name, schema in operation.query
    ]
    parameters += [
        {"name": name, "in": "header", "schema": {"type": "string"}} for name in operation.headers
    ]
    kind = "text/event-stream" if operation.events else "application/json"
    answer = _resolved(operation.answer or {"type": "string"})
    responses: dict[str, Any] = {
        str(operation.status): {
            "description": operation.summary,
            "content": {kind: {"schema": answer}},
        }
    }
    error = {"schema": {"$ref": "#/components/schemas/Error"}}
    for status in sorted({400, 401, 403, 429, 503, *operation.errors}):
        responses[str(status)] = {
            "description": "The error, and what to do",
            "content": {"application/json": error},
        }
    described: dict[str, Any] = {
        "summary": operation.summary,
        "parameters": parameters,
        "responses": responses,
    }
    if operation.body is not None:
        name = operation.body.__name__
        described["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{name}"}}},
        }
    return described


def _resolved(schema: Any) -> Any:
    """Return the schema with model names replaced by references."""
    if isinstance(schema, dict):
        return {
            key: f"#/components/schemas/{value}" if key == "$ref" else _resolved(value)
            for key, value in schema.items()
        }
    return schema
