"""Runs, calls and a host for tests: models answer from a script, tools are the real ones."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count

from loopline.agents.records import (
    Call,
    FinishReason,
    GenerationOptions,
    JsonObject,
    Message,
    PolicyRef,
    Run,
    SamplingParams,
    Task,
    ToolCall,
    ToolSpec,
    Usage,
)
from loopline.agents.tools import call_tool
from loopline.agents.workflows import policies_for, prompt_hashes

RUN_ID = "01890000-0000-7000-8000-000000000001"


def a_run(workflow: str = "delegate", question: str = "What is 3 * 4?", **options: object) -> Run:
    """Create a run with the mathematical prompts, where a choice exists and none is given."""
    if workflow in ("delegate", "solo", "cascade"):
        options.setdefault("prompts", "mathematics")
    return Run(
        id=RUN_ID,
        task=Task(prompt=question),
        workflow=workflow,
        options=json.loads(json.dumps(options)),
        policies=policies_for(workflow),
        prompts=prompt_hashes(workflow, options=json.loads(json.dumps(options))),
        created=1_000.0,
        deadline=1_600.0,
    )


_ids = count(1)


def asks(name: str, arguments: JsonObject | None = None, **kwargs: object) -> ToolCall:
    """A tool call as a model would make it."""
    call_arguments: JsonObject = (
        arguments if arguments is not None else json.loads(json.dumps(kwargs))
    )
    return ToolCall(
        id=f"call-{next(_ids)}",
        name=name,
        arguments=call_arguments,
        raw_arguments=json.dumps(call_arguments),
    )


def asks_badly(name: str, raw: str) -> ToolCall:
    """A tool call whose arguments are not a JSON object."""
    return ToolCall(
        id=f"call-{next(_ids)}",
        name=name,
        arguments=None,
        raw_arguments=raw,
        error="not a JSON object",
    )


def says(text: str, *tool_calls: ToolCall, finish: FinishReason | None = None) -> Call:
    """A completion."""
    number = next(_ids)
    return Call(
        id=f"completion-{number}",
        policy=PolicyRef(name="test", base="script"),
        text=text,
        tool_calls=tool_calls,
        prompt_ids=(number,),
        output_ids=(number + 1,),
        logprobs=(-0.5,),
        sampling=SamplingParams(),
        finish_reason=finish or ("tool_calls" if tool_calls else "stop"),
        usage=Usage(prompt=10, completion=5, source="engine"),
        cost_micro_dollars=0,
        trainable=True,
    )


@dataclass(frozen=True)
class Request:
    """A role's request to its host."""

    messages: tuple[Message, ...]
    tools: tuple[str, ...]
    previous: Call | None
    json_schema: JsonObject | None = None

    @property
    def last(self) -> Message:
        return self.messages[-1]


Reply = Call | tuple[Call, ...] | Exception


@dataclass
class ScriptedHost:
    """Answers completions from a list, or from a function of the request."""

    script: Iterable[Reply] | Callable[[Request], Reply]
    requests: list[Request] = field(default_factory=list[Request])
    tool_calls: list[tuple[str, JsonObject]] = field(default_factory=list[tuple[str, JsonObject]])
    others: dict[str, ScriptedHost] = field(default_factory=dict[str, "ScriptedHost"])

    def __post_init__(self) -> None:
        self._replies = None if callable(self.script) else iter(self.script)

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[ToolSpec] = (),
        sampling: SamplingParams | None = None,
        previous: Call | None = None,
        json_schema: JsonObject | None = None,
        options: GenerationOptions | None = None,
    ) -> tuple[Call, ...]:
        names = tuple(tool.name for tool in tools)
        request = Request(tuple(messages), names, previous, json_schema)
        self.requests.append(request)
        if callable(self.script):
            reply = self.script(request)
        else:
            assert self._replies is not None
            reply = next(self._replies)
        if isinstance(reply, Exception):
            raise reply
        return reply if isinstance(reply, tuple) else (reply,)

    def of_agent(self, agent: str) -> ScriptedHost:
        """Return the host for this agent: its entry in `others`, or this host for all agents."""
        return self.others.get(agent, self)

    async def call_tool(self, name: str, arguments: JsonObject) -> JsonObject:
        self.tool_calls.append((name, arguments))
        return await call_tool(name, arguments)
