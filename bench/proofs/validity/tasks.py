"""The two kinds of request, the rules of validity for each, and the counts."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Protocol

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from loopline.agents.prompts import prompt_in
from loopline.agents.records import Message, SamplingParams
from loopline.agents.tools.calculator import calculate
from loopline.agents.tools.declaration import InvalidArguments
from loopline.agents.tools.handover import delegate, delegate_many
from loopline.bench.statistics import Interval, wilson
from loopline.workers.engines.protocol import Completion, GenerateRequest


@dataclass
class Counts:
    """Counts of all completions at one temperature, constrained or not."""

    kind: str
    """Kind: `tool calls` or `json answer`."""
    temperature: float
    constrained: bool
    completions: int = 0
    with_any: int = 0
    """Completions with at least one call; for JSON answers, all completions."""
    written: int = 0
    """Written calls or answers."""
    cut: int = 0
    """Written calls or answers that max_tokens truncated."""
    parsed: int = 0
    """Written calls or answers that are JSON that a record can carry."""
    valid: int = 0
    """Written calls or answers that the schema accepts."""
    tokens: int = 0
    seconds: float = 0.0

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / self.seconds

    @property
    def called(self) -> Interval:
        return wilson(self.with_any, self.completions)

    @property
    def parse_share(self) -> Interval:
        return wilson(self.parsed, self.written)

    @property
    def validity(self) -> Interval:
        return wilson(self.valid, self.written)


TOOLS = {tool.name: tool for tool in (delegate, delegate_many, calculate)}
"""Tools of the planner."""


class Task(Protocol):
    """One kind of request."""

    kind: str

    def request(
        self, name: str, problem: str, sampling: SamplingParams, *, constrained: bool
    ) -> GenerateRequest: ...

    def count(self, completion: Completion, counts: Counts) -> None:
        """Count the calls or the answer in the completion."""
        ...


class ToolCalls:
    """A word problem with the planner's prompt and tools. The engine's setting decides whether
    calls are constrained."""

    kind = "tool calls"

    def request(
        self, name: str, problem: str, sampling: SamplingParams, *, constrained: bool
    ) -> GenerateRequest:
        """See `Task`."""
        del constrained
        return GenerateRequest(
            id=name,
            messages=(
                Message(role="system", content=prompt_in("mathematics", "planner").text),
                Message(role="user", content=problem),
            ),
            tools=tuple(tool.spec for tool in TOOLS.values()),
            sampling=sampling,
        )

    def count(self, completion: Completion, counts: Counts) -> None:
        """See `Task`."""
        counts.with_any += bool(completion.tool_calls)
        counts.written += len(completion.tool_calls)
        last_is_open = completion.text.rfind("<tool_call>") > completion.text.rfind("</tool_call>")
        counts.cut += (
            completion.finish_reason == "length" and bool(completion.tool_calls) and last_is_open
        )
        for call in completion.tool_calls:
            if call.arguments is None:
                continue
            counts.parsed += 1
            tool = TOOLS.get(call.name)
            try:
                if tool is not None:
                    tool.parse(call.arguments)
                    counts.valid += 1
            except InvalidArguments:
                continue


class Answer(BaseModel):
    """Schema of a JSON answer. It is bounded, so that a confused model cannot write digits
    forever."""

    model_config = ConfigDict(extra="forbid", strict=True)
    answer: int = Field(ge=0, le=999_999_999)


class JsonAnswer:
    """A word problem whose prompt asks for the answer as a JSON object; with a constraint, the
    request also contains the schema."""

    kind = "json answer"

    def request(
        self, name: str, problem: str, sampling: SamplingParams, *, constrained: bool
    ) -> GenerateRequest:
        """See `Task`."""
        prompt = (
            f'{problem}\nAnswer with a JSON object and nothing else, for example {{"answer": 42}}.'
        )
        return GenerateRequest(
            id=name,
            messages=(Message(role="user", content=prompt),),
            json_schema=Answer.model_json_schema() if constrained else None,
            sampling=sampling,
        )

    def count(self, completion: Completion, counts: Counts) -> None:
        """See `Task`."""
        counts.with_any += 1
        counts.written += 1
        counts.cut += completion.finish_reason == "length"
        try:
            json.loads(completion.text)
            counts.parsed += 1
            Answer.model_validate_json(completion.text)
            counts.valid += 1
        except (ValidationError, ValueError):
            return
