"""Attributes of spans, by the version of the conventions that they follow. Apart from `error.type`,
no other module uses names from these conventions.

Three vocabularies are used side by side, because each reader knows only its own: OpenTelemetry's
conventions for generative AI, which change with every version; OpenInference's, which Phoenix
reads; and the few attributes of Langfuse that it takes from no other vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from pydantic import JsonValue

from loopline.agents.records import Call, JsonObject, Message, Run, Step
from loopline.agents.token_limits import NO_LIMIT
from loopline.workers.json_bytes import json_bytes

Semconv = Literal["0.1", "1.41", "1.36"]
"""Versions of semantic-conventions-genai; older ones are of semantic-conventions."""
Value = str | bool | int | float | Sequence[str]
Attributes = dict[str, Value]

MAX_CONTENT_CHARS = 100_000
"""Longest text; a longer one is truncated."""
_HIDDEN_TAGS = frozenset({"openai_response", "traceparent"})
"""Tags in which the gateway stores parts of a request."""
_MICRO = 1_000_000

_SCHEMA_URLS: dict[Semconv, str] = {
    "0.1": "https://opentelemetry.io/schemas/gen-ai/0.1.0",
    "1.41": "https://opentelemetry.io/schemas/1.41.0",
    "1.36": "https://opentelemetry.io/schemas/1.36.0",
}
_SINCE_1_37 = frozenset(
    {
        "gen_ai.input.messages",
        "gen_ai.output.messages",
        "gen_ai.request.stream",
        "gen_ai.response.time_to_first_chunk",
        "gen_ai.tool.call.arguments",
        "gen_ai.tool.call.result",
        "gen_ai.usage.cache_read.input_tokens",
        "gen_ai.usage.reasoning.output_tokens",
    }
)


@dataclass(frozen=True)
class Conventions:
    """Builds the attributes of spans; `content` adds prompts, answers, arguments and results."""

    semconv: Semconv = "0.1"
    content: bool = False
    providers: Mapping[str, str] | None = None
    """Values of `gen_ai.provider.name` by pool."""
    priced_pools: frozenset[str] = frozenset()
    """Pools that have a price: the cost of other pools' calls is unknown, which is not zero."""

    @property
    def schema_url(self) -> str:
        return _SCHEMA_URLS[self.semconv]

    def run(self, run: Run) -> tuple[str, Attributes]:
        """Name and attributes of a run's span."""
        workflow = run.workflow
        operation = "invoke_agent" if self.semconv == "1.36" else "invoke_workflow"
        label = "gen_ai.workflow.name" if self.semconv == "1.41" else "gen_ai.agent.name"
        tags = {name: value for name, value in run.tags.items() if name not in _HIDDEN_TAGS}
        attributes: Attributes = {
            "gen_ai.operation.name": operation,
            label: workflow,
            "loopline.run.id": run.id,
            "loopline.environment": run.task.environment,
            **self.of_caller(run),
            "openinference.span.kind": "CHAIN",
            "langfuse.observation.type": "chain",
            "langfuse.trace.name": workflow,
        }
        if tags:
            attributes["metadata"] = _json(tags)
            attributes["tag.tags"] = attributes["langfuse.trace.tags"] = [
                f"{name}={value}" for name, value in tags.items()
            ]
        if run.parent is not None:
            attributes["loopline.run.parent"] = run.parent
        return f"{operation} {workflow}", self._versioned(attributes)

    def run_content(self, run: Run, answer: str | None) -> Attributes:
        if not self.content:
            return {}
        prompt, text = _cut(run.task.prompt), _cut(answer or "")
        return {
            **_values(prompt, text, "text/plain"),
            "langfuse.trace.input": prompt,
            "langfuse.trace.output": text,
        }

    def of_caller(self, run: Run) -> Attributes:
        """The run's owner, on every span of the run: readers do not inherit it from the parent."""
        attributes: Attributes = {}
        if session := run.tags.get("session", ""):
            attributes |= {"gen_ai.conversation.id": session, "session.id": session}
        if user := run.tags.get("user", "") or run.account:
            attributes["user.id"] = user
        return attributes

    def step(self, run: Run, step: Step) -> tuple[str, Attributes]:
        """Name and attributes of a step's span."""
        attributes: Attributes = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": step.agent,
            "loopline.step.turn": step.turn,
            "loopline.step.branch": step.branch,
            "loopline.step.decision": step.decision.kind,
            "loopline.step.queue_seconds": step.timings.waited,
            "loopline.step.deliveries": step.timings.deliveries,
            "loopline.step.retries": step.timings.retries,
            **self.of_caller(run),
            "openinference.span.kind": "AGENT",
            "agent.name": step.agent,
            "graph.node.id": step.agent,
            "langfuse.observation.type": "agent",
        }
        if self.semconv != "0.1":  # 0.1 requires it only for agents that are served elsewhere
            attributes["gen_ai.provider.name"] = "loopline"
        return f"invoke_agent {step.agent}", self._versioned(attributes)

    def step_content(self, step: Step) -> Attributes:
        if not self.content:
            return {}
        decision = _json(step.decision.model_dump(mode="json"))
        return _values(_cut(_json(step.input)), _cut(decision), "application/json")

    def failed_completion(self, run: Run, policy: str) -> tuple[str, Attributes]:
        """Name and attributes of the span of a request that got no answer."""
        pool = policy.partition("/")[0]
        attributes: Attributes = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": self._provider(pool),
            "gen_ai.request.model": policy,
            "loopline.policy.name": policy,
            **self.of_caller(run),
            "openinference.span.kind": "LLM",
            "llm.model_name": policy,
            "langfuse.observation.type": "generation",
        }
        return f"chat {policy}", self._versioned(attributes)

    def completion(self, run: Run, calls: Sequence[Call], started: float) -> tuple[str, Attributes]:
        """Name and attributes of the span of a request that these candidates answered; `started` is
        in Unix seconds."""
        first = calls[0]
        policy, sampling = first.policy, first.sampling
        provider = self._provider(policy.name)
        response_model = policy.base
        if policy.adapter is not None:
            response_model = f"{policy.adapter}@{policy.version}"
        prompt = sum(call.usage.prompt for call in calls)
        completion = sum(call.usage.completion for call in calls)
        cached = sum(call.usage.cached for call in calls)
        reasoning = sum(call.usage.reasoning for call in calls)
        parameters: dict[str, Value] = {
            "top_p": sampling.top_p,
        }
        if not sampling.endpoint_temperature:
            parameters["temperature"] = sampling.temperature
        if sampling.max_tokens != NO_LIMIT:
            parameters["max_tokens"] = sampling.max_tokens
        if sampling.top_k:
            top_k = sampling.top_k
            parameters["top_k"] = top_k if self.semconv == "0.1" else float(top_k)
        if sampling.seed is not None:
            parameters["seed"] = sampling.seed
        if sampling.stop:
            parameters["stop_sequences"] = sampling.stop
        if sampling.penalizes:
            parameters["frequency_penalty"] = sampling.frequency_penalty
            parameters["presence_penalty"] = sampling.presence_penalty
        attributes: Attributes = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": provider,
            "gen_ai.request.model": policy.base,
            **{f"gen_ai.request.{name}": value for name, value in parameters.items()},
            "gen_ai.response.id": first.id,
            "gen_ai.response.model": response_model,
            "gen_ai.response.finish_reasons": [call.finish_reason for call in calls],
            "gen_ai.usage.input_tokens": prompt,
            "gen_ai.usage.output_tokens": completion,
            "gen_ai.usage.cache_read.input_tokens": cached,
            "gen_ai.usage.reasoning.output_tokens": reasoning,
            "loopline.policy.name": policy.name,
            **self.of_caller(run),
            "openinference.span.kind": "LLM",
            "llm.provider": provider,
            "llm.model_name": policy.base,
            "llm.invocation_parameters": _json(parameters),
            "llm.token_count.prompt": prompt,
            "llm.token_count.completion": completion,
            "llm.token_count.total": prompt + completion,
            "llm.token_count.prompt_details.cache_read": cached,
            "llm.token_count.completion_details.reasoning": reasoning,
            "llm.finish_reason": first.finish_reason,
            "langfuse.observation.type": "generation",
        }
        if len(calls) > 1:
            attributes["gen_ai.request.choice.count"] = len(calls)
        if policy.name in self.priced_pools:
            dollars = sum(call.cost_micro_dollars for call in calls) / _MICRO
            attributes["llm.cost.total"] = dollars
            attributes["langfuse.observation.cost_details"] = _json({"total": dollars})
        if run.stream:
            seconds = first.latency.queue + first.latency.first_token
            begun = datetime.fromtimestamp(started + seconds, UTC)
            attributes |= {
                "gen_ai.request.stream": True,
                "gen_ai.response.time_to_first_chunk": seconds,
                "langfuse.observation.completion_start_time": begun.isoformat(
                    timespec="milliseconds"
                ),
            }
        return f"chat {policy.base}", self._versioned(attributes)

    def completion_content(
        self, calls: Sequence[Call], prompt: Sequence[Message] | None
    ) -> Attributes:
        """`prompt` contains the messages that the model read, if known."""
        if not self.content:
            return {}
        answers = [_answer(call) for call in calls]
        attributes: Attributes = {
            "gen_ai.output.messages": _json([_message(answer) for answer in answers]),
            "output.value": _cut(calls[0].said),
            "output.mime_type": "text/plain",
            **_flattened("llm.output_messages", answers),
        }
        if prompt is not None:
            messages = _json([_message(message) for message in prompt])
            attributes |= {
                "gen_ai.input.messages": messages,
                "input.value": messages,
                "input.mime_type": "application/json",
                **_flattened("llm.input_messages", prompt),
            }
        return self._versioned(attributes)

    def serving(self, calls: Sequence[Call]) -> tuple[str, Attributes]:
        """Name and attributes of the span of a gpu worker's work for a request."""
        latency, policy = calls[0].latency, calls[0].policy
        return f"serve {policy.name}", {
            "loopline.policy.name": policy.name,
            "loopline.policy.version": policy.version,
            "loopline.queue_seconds": latency.queue,
            "loopline.first_token_seconds": latency.first_token,
            "loopline.decode_seconds": latency.decode,
            "openinference.span.kind": "CHAIN",
            "langfuse.observation.type": "span",
        }

    def http_request(
        self, method: str, route: str, path: str, status: int, run_id: str
    ) -> tuple[str, Attributes]:
        """Name and attributes of the span of a request to a gateway; `run_id` is empty if it
        created no run."""
        attributes: Attributes = {
            "http.request.method": method,
            "http.route": route,
            "http.response.status_code": status,
            "url.path": path,
            "openinference.span.kind": "CHAIN",
            "langfuse.observation.type": "span",
        }
        if run_id:
            attributes["loopline.run.id"] = run_id
        if status >= 400:
            attributes["error.type"] = str(status)
        return f"{method} {route}", attributes

    def tool_work(self, name: str, run_id: str, deliveries: int) -> tuple[str, Attributes]:
        """Name and attributes of the span of a tool worker's work for a call."""
        return f"run {name}", {
            "gen_ai.tool.name": name,
            "loopline.run.id": run_id,
            "loopline.deliveries": deliveries,
            "openinference.span.kind": "CHAIN",
            "langfuse.observation.type": "span",
        }

    def tool(
        self, run: Run, name: str, arguments: JsonObject | None, output: JsonObject | None
    ) -> tuple[str, Attributes]:
        attributes: Attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": name,
            "gen_ai.tool.type": "function",
            **self.of_caller(run),
            "openinference.span.kind": "TOOL",
            "tool.name": name,
            "langfuse.observation.type": "tool",
        }
        if self.content and arguments is not None and output is not None:
            parameters_text, result = _cut(_json(arguments)), _cut(_json(output))
            attributes |= {
                "gen_ai.tool.call.arguments": parameters_text,
                "gen_ai.tool.call.result": result,
                "tool.parameters": parameters_text,
                **_values(parameters_text, result, "application/json"),
            }
        return f"execute_tool {name}", self._versioned(attributes)

    def _provider(self, pool: str) -> str:
        return (self.providers or {}).get(pool, "loopline")

    def _versioned(self, attributes: Attributes) -> Attributes:
        if self.semconv != "1.36":
            return attributes
        renamed = {
            "gen_ai.system" if name == "gen_ai.provider.name" else name: value
            for name, value in attributes.items()
        }
        return {name: value for name, value in renamed.items() if name not in _SINCE_1_37}


def _answer(call: Call) -> Message:
    return Message(role="assistant", content=call.said, tool_calls=call.tool_calls)


def _message(message: Message) -> JsonObject:
    """Message in the form of `gen_ai.input.messages`."""
    parts: list[JsonValue] = []
    text = _cut(message.content)
    if message.role == "tool":
        parts.append({"type": "tool_call_response", "id": message.tool_call_id, "result": text})
    elif text:
        parts.append({"type": "text", "content": text})
    for call in message.tool_calls:
        parts.append(
            {"type": "tool_call", "id": call.id, "name": call.name, "arguments": call.arguments}
        )
    return {"role": message.role, "parts": parts}


def _flattened(prefix: str, messages: Iterable[Message]) -> Attributes:
    """Messages in OpenInference's form: an attribute for each leaf."""
    attributes: Attributes = {}
    for i, message in enumerate(messages):
        place = f"{prefix}.{i}.message"
        attributes[f"{place}.role"] = message.role
        attributes[f"{place}.content"] = _cut(message.content)
        if message.tool_call_id is not None:
            attributes[f"{place}.tool_call_id"] = message.tool_call_id
        for j, call in enumerate(message.tool_calls):
            of_call = f"{place}.tool_calls.{j}.tool_call"
            attributes[f"{of_call}.id"] = call.id
            attributes[f"{of_call}.function.name"] = call.name
            attributes[f"{of_call}.function.arguments"] = _cut(_json(call.arguments))
    return attributes


def _values(question: str, answer: str, kind: str) -> Attributes:
    return {
        "input.value": question,
        "input.mime_type": kind,
        "output.value": answer,
        "output.mime_type": kind,
    }


def _json(value: object) -> str:
    return json_bytes(value).decode()


def _cut(text: str) -> str:
    if len(text) <= MAX_CONTENT_CHARS:
        return text
    return f"{text[:MAX_CONTENT_CHARS]}… ({len(text)} characters)"
