"""Responses of the chat API for a run of the workflow `chat`, or of any other."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from loopline.agents.records import Call, Message, Outcome, Step, ToolCall, Trajectory, Usage
from loopline.agents.roles.conversation import assistant_message
from loopline.runtime.gateway.errors import ApiError, failure_error, outcome_error


@dataclass(frozen=True, slots=True)
class Choice:
    """One answer: from a model's call, or the text of a whole team."""

    message: Message
    finish_reason: str
    reasoning: str = ""
    call: Call | None = None


@dataclass(frozen=True)
class Answer:
    """The complete content of a response."""

    id: str
    """Id of the run."""
    created: int
    model: str
    """Model as the caller named it."""
    fingerprint: str
    choices: tuple[Choice, ...]
    usage: dict[str, Any]


def answer_of(trajectory: Trajectory, model: str) -> Answer:
    """Raises `ApiError` for a run that ended without an answer."""
    run = trajectory.run
    require_answer(trajectory)
    calls = [call for step in trajectory.steps for call in step.calls]
    if run.workflow == "chat":
        choices = tuple(choice_of(call) for call in calls)
    else:
        message = Message(role="assistant", content=trajectory.answer or "")
        choices = (Choice(message, _finish_reason(trajectory)),)
    return Answer(
        id=run.id,
        created=int(run.created),
        model=model,
        fingerprint=fingerprint_of(calls),
        choices=choices,
        usage=usage_of([call.usage for call in calls]),
    )


def require_answer(trajectory: Trajectory) -> None:
    """Raises `ApiError` for a run that ended without an answer."""
    if trajectory.outcome not in (Outcome.ANSWERED, Outcome.SOLVED, Outcome.FAILED):
        raise _error_of(trajectory)


def _finish_reason(trajectory: Trajectory) -> str:
    """Return a team's finish reason: `stop`, unless the text of its answer was truncated."""
    last = trajectory.steps[-1] if trajectory.steps else None
    if last is None or "cut_off" not in last.decision.data or not last.calls:
        return "stop"
    return last.calls[-1].finish_reason


def choice_of(call: Call) -> Choice:
    message = assistant_message(call)
    reason = "tool_calls" if call.tool_calls else call.finish_reason
    return Choice(message, reason, call.thought, call)


def fingerprint_of(calls: Sequence[Call]) -> str:
    """Return the weights that answered, each once: base, adapter and version."""
    names = [
        "/".join(filter(None, (call.policy.base, call.policy.adapter)))
        + (f"@{call.policy.version}" if call.policy.version else "")
        for call in calls
    ]
    return "+".join(dict.fromkeys(names))


def usage_of(usages: Sequence[Usage]) -> dict[str, Any]:
    """Sum up the usage of all calls in the format of OpenAI's API."""
    prompt = sum(usage.prompt for usage in usages)
    completion = sum(usage.completion for usage in usages)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": sum(usage.cached for usage in usages)},
        "completion_tokens_details": {"reasoning_tokens": sum(usage.reasoning for usage in usages)},
    }


def completion_body(answer: Answer, *, logprobs: bool, token_ids: bool) -> dict[str, Any]:
    """Return a `chat.completion`."""
    body: dict[str, Any] = {
        "id": completion_id(answer.id),
        "object": "chat.completion",
        "created": answer.created,
        "model": answer.model,
        "choices": [
            _choice_body(index, choice, logprobs=logprobs, token_ids=token_ids)
            for index, choice in enumerate(answer.choices)
        ],
        "usage": answer.usage,
        "system_fingerprint": answer.fingerprint,
        "service_tier": "default",
    }
    first = answer.choices[0].call
    if token_ids:
        body["prompt_token_ids"] = list(first.prompt_ids) if first else None
    return body


def completion_id(run_id: str) -> str:
    return f"chatcmpl-{run_id}"


def _choice_body(index: int, choice: Choice, *, logprobs: bool, token_ids: bool) -> dict[str, Any]:
    message: dict[str, Any] = {
        "role": "assistant",
        "content": content_of(choice.message),
        "refusal": None,
    }
    if choice.reasoning:
        message["reasoning_content"] = choice.reasoning
    if choice.message.tool_calls:
        message["tool_calls"] = [tool_call_body(call) for call in choice.message.tool_calls]
    body: dict[str, Any] = {
        "index": index,
        "message": message,
        "logprobs": logprobs_of(choice.call) if logprobs else None,
        "finish_reason": choice.finish_reason,
    }
    if token_ids:
        body["token_ids"] = list(choice.call.output_ids) if choice.call else None
    return body


def content_of(message: Message) -> str | None:
    return message.content or (None if message.tool_calls else "")


def tool_call_body(call: ToolCall) -> dict[str, Any]:
    arguments = call.raw_arguments or json.dumps(call.arguments or {}, ensure_ascii=False)
    body = {
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": arguments},
    }
    return body if call.extra_content is None else {**body, "extra_content": call.extra_content}


def logprobs_of(call: Call | None) -> dict[str, Any] | None:
    """Return the log-probabilities; None if the engine returned none, or no text per token."""
    logprobs = () if call is None else call.logprobs or call.reported_logprobs
    if call is None or not logprobs or len(call.tokens) != len(logprobs):
        return None
    tops = call.top_logprobs
    if len(tops) != len(call.tokens):  # not requested, or not returned for each token
        tops = ((),) * len(call.tokens)
    return {
        "content": [
            {**_scored(token, logprob), "top_logprobs": [_scored(*candidate) for candidate in top]}
            for token, logprob, top in zip(call.tokens, logprobs, tops, strict=True)
        ],
        "refusal": None,
    }


def _scored(token: str, logprob: float) -> dict[str, Any]:
    return {"token": token, "logprob": logprob, "bytes": list(token.encode())}


def _error_of(trajectory: Trajectory) -> ApiError:
    last: Step | None = trajectory.steps[-1] if trajectory.steps else None
    if last is not None and last.decision.kind == "failed":
        data = last.decision.data
        return failure_error(str(data.get("failure")), str(data.get("reason")))
    return outcome_error(trajectory.outcome, trajectory.reason)
