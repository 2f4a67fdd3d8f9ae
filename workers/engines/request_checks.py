"""The refusals that every engine shares: what it can't do is an error, never ignored."""

from __future__ import annotations

import time

from loopline.workers.engines.protocol import (
    CannotContinue,
    Capabilities,
    EngineDeadline,
    EngineError,
    GenerateRequest,
)


def refuse_unsupported(request: GenerateRequest, capabilities: Capabilities, engine: str) -> None:
    """Raise for whatever `request` asks that an engine with these capabilities can't honour.

    Raises EngineError of kind `unknown_adapter` or `bad_request`, and EngineDeadline when there
    is no time left at all.
    """
    if request.deadline is not None and request.deadline <= time.time():
        raise EngineDeadline(f"request {request.id}: its deadline had passed before it started")
    if request.adapter is not None and not capabilities.adapters:
        raise EngineError(
            f"request {request.id} names the adapter {request.adapter!r}, but the {engine} engine "
            "serves no adapters",
            kind="unknown_adapter",
        )
    if request.json_schema is not None and not capabilities.json_schema:
        raise EngineError(
            f"request {request.id} brings a JSON schema, which the {engine} engine cannot enforce; "
            "leave the schema out or use a pool that can",
            kind="bad_request",
        )
    if request.tools and not capabilities.tools:
        raise EngineError(
            f"request {request.id} offers tools, which the {engine} engine does not understand",
            kind="bad_request",
        )
    if request.resume_ids and not capabilities.continuation:
        raise CannotContinue(
            f"request {request.id} is to be continued from ids, which the {engine} engine cannot; "
            "ask again from the start"
        )
    if request.resume_ids and request.sampling.n != 1:
        raise CannotContinue(
            f"request {request.id}: only a single completion can be continued, not "
            f"n = {request.sampling.n}; ask again from the start"
        )


def refuse_other_version(request: GenerateRequest, version: int) -> None:
    """Raise CannotContinue for ids that another version than this one of the adapter drew."""
    if request.resume_ids and request.resume_version != version:
        raise CannotContinue(
            f"request {request.id}: the ids to continue from were drawn by version "
            f"{request.resume_version} of its adapter, and version {version} serves now; ask again "
            "from the start"
        )


def context_overflow(request_id: str, prompt_tokens: int, max_context: int) -> EngineError:
    """The error for a prompt that leaves no room for even one new token."""
    return EngineError(
        f"request {request_id}: the prompt has {prompt_tokens} tokens, but the model's context "
        f"holds {max_context}; shorten the prompt or use a model with a longer context",
        kind="context_overflow",
    )
