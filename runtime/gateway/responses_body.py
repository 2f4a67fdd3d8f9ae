"""Renders a run as the `response` object of the Responses API."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from loopline.agents.records import Outcome, Run, Trajectory
from loopline.agents.roles.chat import ChatOptions
from loopline.runtime.gateway.chat_response import Answer, answer_of, usage_of
from loopline.runtime.gateway.errors import ApiError
from loopline.runtime.gateway.responses_items import ItemKind, output_items, text_order
from loopline.runtime.gateway.responses_request import JsonSchemaOutput, ResponseRecord
from loopline.runtime.gateway.responses_tools import tool_bodies
from loopline.runtime.gateway.service import RESERVED_TAGS, RESPONSE_TAG

_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}
_ERROR_CODES = {
    "rate_limit_exceeded": "rate_limit_exceeded",
    "insufficient_quota": "rate_limit_exceeded",
    "invalid_value": "invalid_prompt",
    "context_length_exceeded": "invalid_prompt",
    "content_filter": "invalid_prompt",
}
"""Our error codes → those of the API for a response; all others are `server_error`."""


def response_id(run_id: str) -> str:
    return f"resp_{run_id}"


def record_of(run: Run) -> ResponseRecord | None:
    """Return the run's record of its request; None if the run was not requested as a response."""
    text = run.tags.get(RESPONSE_TAG)
    return None if text is None else ResponseRecord.model_validate_json(text)


@dataclass(frozen=True)
class ResponseView:
    """One run, with the parts of its response that come from other sources."""

    run: Run
    record: ResponseRecord
    model: str
    """Model as the caller named it."""
    temperature: float
    """The pool's temperature, unless the caller or a call sets another."""
    top_p: float

    @property
    def streams_text(self) -> bool:
        """Whether the run's tokens are those of the answer: true for the workflow `chat`, false for
        a team."""
        return self.run.workflow == "chat"

    @cached_property
    def options(self) -> ChatOptions:
        """Options of the workflow `chat`; the defaults for a team."""
        return ChatOptions.model_validate(self.run.options) if self.streams_text else ChatOptions()

    def body(self, status: str, **fields: Any) -> dict[str, Any]:
        """Return the response, with the `fields` of an answer if there is one."""
        run, record = self.run, self.record
        temperature, top_p = record.temperature, record.top_p
        return {
            "id": response_id(run.id),
            "object": "response",
            "created_at": int(run.created),
            "completed_at": None,
            "status": status,
            "background": record.background,
            "error": None,
            "incomplete_details": None,
            "instructions": run.task.messages[0].content if record.has_instructions else None,
            "max_output_tokens": record.max_output_tokens,
            "max_tool_calls": None,
            "model": self.model,
            "output": [],
            "parallel_tool_calls": record.parallel_tool_calls,
            "previous_response_id": record.previous_response_id,
            "prompt_cache_key": record.prompt_cache_key,
            "prompt_cache_retention": record.prompt_cache_retention,
            "reasoning": {"effort": record.effort, "summary": record.summary},
            "safety_identifier": record.safety_identifier,
            "service_tier": "default",
            "store": record.store,
            "temperature": self.temperature if temperature is None else temperature,
            "text": {"format": self._format(), "verbosity": record.verbosity or "medium"},
            "tool_choice": (
                record.tool_choice
                if isinstance(record.tool_choice, str)
                else record.tool_choice.model_dump()
            ),
            "tools": tool_bodies(self.options.tools, record.tool_forms, record.namespaces),
            "top_logprobs": record.top_logprobs,
            "top_p": self.top_p if top_p is None else top_p,
            "presence_penalty": record.presence_penalty or 0.0,
            "frequency_penalty": record.frequency_penalty or 0.0,
            "truncation": "disabled",
            "usage": None,
            "user": record.user,
            "metadata": {
                name: value for name, value in run.tags.items() if name not in RESERVED_TAGS
            },
            **fields,
        }

    def ended(
        self, trajectory: Trajectory, order: Sequence[ItemKind] | None = None
    ) -> dict[str, Any]:
        """Return the response of an ended run. `order` is the order of the items that a stream has
        already shown."""
        common = {"usage": response_usage(trajectory), "completed_at": int(trajectory.ended)}
        if trajectory.outcome is Outcome.CANCELLED:
            return self.body("cancelled", **common | {"completed_at": None})
        try:
            answer = answer_of(trajectory, self.model)
        except ApiError as error:
            return self.body("failed", **common | {"completed_at": None}, error=_error(error))
        return self.answered(answer, order, **common)

    def answered(
        self, answer: Answer, order: Sequence[ItemKind] | None, **fields: Any
    ) -> dict[str, Any]:
        choice = answer.choices[0]
        if order is None:
            order = text_order(choice, streamed=self.run.stream)
        if choice.call is not None:
            sampling = choice.call.sampling
            fields |= {"temperature": sampling.temperature, "top_p": sampling.top_p}
        fields["output"] = output_items(
            self.run.id,
            choice,
            order,
            logprobs=self.record.logprobs,
            forms=self.record.tool_forms,
        )
        reason = _INCOMPLETE.get(choice.finish_reason)
        if reason is None:
            return self.body("completed", **fields)
        return self.body(
            "incomplete", **fields | {"completed_at": None}, incomplete_details={"reason": reason}
        )

    def _format(self) -> dict[str, Any]:
        output = self.record.format
        body = output.model_dump(by_alias=True)
        if isinstance(output, JsonSchemaOutput):
            body["schema"] = self.options.json_schema or {}
        return body


def response_usage(trajectory: Trajectory) -> dict[str, Any] | None:
    usages = [call.usage for step in trajectory.steps for call in step.calls]
    if not usages:
        return None
    total = usage_of(usages)
    return {
        "input_tokens": total["prompt_tokens"],
        "input_tokens_details": {**total["prompt_tokens_details"], "cache_write_tokens": 0},
        "output_tokens": total["completion_tokens"],
        "output_tokens_details": total["completion_tokens_details"],
        "total_tokens": total["total_tokens"],
    }


def _error(error: ApiError) -> dict[str, Any]:
    code = _ERROR_CODES.get(error.code or "", "server_error")
    return {"code": code, "message": error.message}
