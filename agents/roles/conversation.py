"""The loop of roles that use tools: ask for a completion, run the tools it calls, ask again.

A step ends when the model writes a text without tool calls, calls a hand-over tool, or has used up
its completions. Messages are only ever appended, and each request names the previous call, so an
engine extends the ids it already has and never tokenizes a text twice.

A tool message `error: …` reports the model's mistakes (an unknown tool, arguments that are not an
object or have wrong types, too many calls at once), so the model can correct itself; the cap on
completions limits how often. Every tool call gets an answer, because endpoints refuse a
conversation in which one is missing.

The observation of a step is `{"turns": [[entry, …], …]}`: one list per call of the step, one
entry per tool call in it:

    {"tool": "calculate", "output": {…}}    run by a tool worker
    {"output": {"error": "…"}}              refused here, without running anything
    null                                    handed over; the answer is in the journal

and `"failure": {"kind": …, "message": …}` alongside it if a request failed for good.

If doubtful completions go to another model (`loopline.agents.roles.escalation`), samples and
refused completions have a turn without entries, or with only the router's, and `"escalation"`
contains the ladder's verdict on each completion that counts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pydantic import JsonValue

from loopline.agents.answer_schema import AnswerSchema
from loopline.agents.call_markup import strip_calls, written_calls
from loopline.agents.errors import MalformedModelOutput, RequestFailed
from loopline.agents.payloads import MAX_PARALLEL, Subproblem
from loopline.agents.protocols import Host
from loopline.agents.records import (
    Call,
    Candidate,
    Decision,
    GenerationOptions,
    JsonObject,
    Message,
    Task,
    ToolCall,
    ToolChoice,
    ToolSpec,
)
from loopline.agents.roles.escalation import Escalation
from loopline.agents.roles.protocol import StepResult
from loopline.agents.token_limits import NO_LIMIT
from loopline.agents.tools.declaration import InvalidArguments
from loopline.agents.tools.handover import HandOverTool

MAX_COMPLETIONS = 12
"""Maximum number of completions in one step. Word problems need up to 8 calculator calls; a model
that still calls tools after 12 turns is going in circles."""

MAX_TOOL_CALLS = 16
"""Maximum number of tool calls of one completion that are run; the others get an error."""

MAX_TOOL_MESSAGE_CHARS = 20_000

MAX_CORRECTIONS = 2
"""Maximum number of times that a model is told the error in its answer and asked again."""


@dataclass(frozen=True, slots=True)
class FinalText:
    """The model's last completion is a text without tool calls."""

    text: str
    """Text without the thoughts."""
    cut_off: str | None = None
    """Reason if the text is incomplete: the token limit, or a content filter."""


@dataclass(frozen=True, slots=True)
class Handover:
    """The model called a hand-over tool."""

    problems: tuple[Subproblem, ...]


@dataclass(frozen=True, slots=True)
class OutOfCompletions:
    """The model used up its completions."""

    reason: str


@dataclass(frozen=True, slots=True)
class RequestFailure:
    """A request failed permanently. Earlier calls are kept."""

    kind: str
    message: str

    @property
    def decision(self) -> Decision:
        return Decision(kind="failed", data={"failure": self.kind, "reason": self.message})


@dataclass(frozen=True, slots=True)
class WrongAnswer:
    """The model's answer did not match its schema, even after corrections."""

    reason: str
    text: str
    """Last text of the model."""


Ending = FinalText | Handover | OutOfCompletions | RequestFailure | WrongAnswer


class CallableTool(Protocol):
    """The part of a tool that is needed to offer it and to check a call of it."""

    @property
    def name(self) -> str: ...

    @property
    def spec(self) -> ToolSpec: ...

    def parse(self, arguments: JsonObject) -> Any:
        """Parse a call's arguments. Raises `InvalidArguments`."""
        ...


class Conversation:
    """One step's conversation with its role's policy."""

    def __init__(
        self,
        host: Host,
        messages: Sequence[Message],
        *,
        tools: Sequence[CallableTool] = (),
        previous: Call | None = None,
        options: GenerationOptions | None = None,
        max_completions: int = MAX_COMPLETIONS,
        answer: AnswerSchema | None = None,
        escalation: Escalation | None = None,
    ) -> None:
        """`options` are those of the run's caller. With `answer`, the final text is JSON that
        matches that schema. With `escalation`, each completion climbs a ladder, and the other model
        replaces a doubtful one."""
        self.calls: list[Call] = []
        self.counting: list[Call] = []
        """Calls that count, without samples and refused ones."""
        self._host = host
        self._messages = list(messages)
        self._tools = {tool.name: tool for tool in tools}
        self._specs = tuple(tool.spec for tool in tools)
        self._previous = previous
        self._options = options
        self._max_completions = max_completions
        self._answer = answer
        self._escalation = escalation
        self._climbs: list[JsonValue] = []
        self._judged: list[JsonValue] = []
        """The router's verdict on the last text, as an entry of its turn."""
        self._corrections = 0
        self._turns: list[JsonValue] = []
        self._failure: RequestFailure | None = None

    async def run(self) -> Ending:
        """Continue until the step ends. Raises `RequestFailed` only if it is retryable."""
        for _ in range(self._max_completions):
            try:
                call = await self._complete()
            except RequestFailed as error:
                if error.retryable:
                    raise
                self._failure = RequestFailure(error.kind, error.message)
                return self._failure
            if not call.tool_calls:
                self._turns.append([*self._judged])
                ending = self._ending(call)
                if ending is not None:
                    return ending
                continue
            entries, problems = await self._dispatch(call)
            self._turns.append(list(entries))
            if problems:
                return Handover(problems)
            self._messages.extend(turn_messages(call, entries, _missing_answer))
        return OutOfCompletions(f"no answer after {self._max_completions} completions")

    def refuse(self, reason: str) -> None:
        """Refuse the final text: the model is told why, and `run` continues from there."""
        content = f"error: {reason}. Answer again."
        self._messages += [
            assistant_message(self.counting[-1]),
            Message(role="user", content=content),
        ]

    def result(self, decision: Decision) -> StepResult:
        """The step's result, with all calls made before the decision."""
        action: JsonObject = {"kind": decision.kind}
        answer = decision.data.get("answer")
        if answer is not None:
            action["answer"] = answer
        observation: JsonObject = {"turns": self._turns}
        if self._escalation is not None:
            observation["escalation"] = self._climbs
        if self._failure is not None:
            observation["failure"] = {
                "kind": self._failure.kind,
                "message": self._failure.message,
            }
        candidate = Candidate(calls=tuple(self.calls), action=action)
        return StepResult(candidates=(candidate,), decision=decision, observation=observation)

    def _ending(self, call: Call) -> FinalText | WrongAnswer | None:
        """The ending for a text without tool calls; None if the model is to correct the text."""
        if self._answer is None:
            return FinalText(call.said, truncation_reason(call))
        text, wrong = self._answer.read(call.said)
        if text is not None:
            return FinalText(text)
        wrong = "; ".join(filter(None, (wrong, truncation_reason(call))))
        if self._corrections == MAX_CORRECTIONS:
            count = self._corrections + 1
            return WrongAnswer(f"after {count} tries the answer is still wrong: {wrong}", call.said)
        self._corrections += 1
        request = f"error: {wrong}. Answer again, with nothing but JSON that fits the schema."
        self._messages += [assistant_message(call), Message(role="user", content=request)]
        return None

    async def _complete(self) -> Call:
        # With a schema, a local model could not call a tool. If there are tools, the schema applies
        # only from the first correction on.
        constrained = self._answer is not None and (not self._specs or self._corrections > 0)
        schema = self._answer.schema if self._answer and constrained else None
        escalation = self._escalation
        calls = await self._host.complete(
            tuple(self._messages),
            tools=self._specs,
            previous=self._previous,
            json_schema=schema,
            options=self._options if escalation is None else escalation.drawing(self._options),
        )
        _require_count(calls, 1 if escalation is None else escalation.drawn)
        for _ in calls[:-1]:
            self._turns.append([])
        self.calls += calls
        call = self._previous = calls[-1]
        if escalation is not None:
            call = await self._climb(escalation, calls, schema)
        self.counting.append(call)
        if self._options is not None:
            # A forced tool call is forced only once: otherwise the model could never answer.
            self._options = self._options.model_copy(update={"tool_choice": ToolChoice()})
        return call

    async def _climb(
        self, escalation: Escalation, calls: Sequence[Call], schema: JsonObject | None
    ) -> Call:
        """The completion that counts: the last one, or the other model's replacement."""
        climb = await escalation.climb(calls, self._wrong_form(calls[-1]))
        entries: list[JsonValue] = [] if climb.entry is None else [climb.entry]
        if climb.passed:
            self._judged = entries
            self._climbs.append(climb.as_json(None))
            return calls[-1]
        self._judged = []
        self._turns.append(entries)
        replacements = await escalation.second.complete(
            tuple(self._messages), tools=self._specs, json_schema=schema, options=self._options
        )
        _require_count(replacements, 1)
        self._climbs.append(climb.as_json(replacements[0]))
        self.calls.append(replacements[0])
        # The small model's ids do not continue another model's ids.
        self._previous = None
        return replacements[0]

    def _wrong_form(self, call: Call) -> str | None:
        """What is formally wrong with a completion, whatever its content."""
        if call.tool_calls:
            checks = (self._check_call(*numbered) for numbered in enumerate(call.tool_calls))
            return next((checked for checked in checks if isinstance(checked, str)), None)
        if (cut_off := truncation_reason(call)) is not None:
            return cut_off
        if self._answer is not None:
            return self._answer.read(call.said)[1] or None
        return None if call.said.strip() else "the text is empty"

    async def _dispatch(self, call: Call) -> tuple[list[JsonObject | None], tuple[Subproblem, ...]]:
        entries: list[JsonObject | None] = []
        problems: list[Subproblem] = []
        for position, tool_call in enumerate(call.tool_calls):
            checked = self._check_call(position, tool_call)
            if isinstance(checked, str):
                entries.append({"output": {"error": checked}})
                continue
            tool, parsed = checked
            if not isinstance(tool, HandOverTool):
                output = await self._host.call_tool(tool.name, tool_call.arguments or {})
                entries.append({"tool": tool.name, "output": output})
                continue
            subproblems = tool.asked(parsed)
            if len(problems) + len(subproblems) > MAX_PARALLEL:
                error = f"more than {MAX_PARALLEL} problems were handed over in one turn"
                entries.append({"output": {"error": error}})
                continue
            entries.append(None)
            problems.extend(
                Subproblem(
                    problem=subproblem.problem,
                    expected_type=subproblem.expected_type,
                    tool_call_id=tool_call.id,
                    position=position,
                )
                for subproblem in subproblems
            )
        return entries, tuple(problems)

    def _check_call(self, position: int, tool_call: ToolCall) -> tuple[CallableTool, Any] | str:
        """The tool with its parsed arguments, or an error message for the call."""
        if position >= MAX_TOOL_CALLS:
            return f"too many tool calls in one turn: at most {MAX_TOOL_CALLS} are carried out"
        tool = self._tools.get(tool_call.name)
        if tool is None:
            tool_names = ", ".join(self._tools) or "none"
            return f"there is no tool {tool_call.name[:64]!r}; the tools are: {tool_names}"
        if tool_call.arguments is None:
            why = f" ({tool_call.error[:200]})" if tool_call.error else ""
            return f"the arguments of {tool.name} must be one JSON object{why}"
        try:
            return tool, tool.parse(tool_call.arguments)
        except InvalidArguments as error:
            return str(error)


def conversation_of(task: Task, instructions: str, *further: str) -> list[Message]:
    """First messages of a role that answers the run's question: one system message (the role's
    instructions, the caller's leading system messages, then the `further` texts), followed by the
    rest of the caller's conversation."""
    turns = task.messages or (Message(role="user", content=task.prompt),)
    start = 0
    while start < len(turns) and turns[start].role == "system":
        start += 1
    system_texts = [instructions, *(message.content for message in turns[:start]), *further]
    system = "\n\n".join(filter(None, system_texts))
    return [*([Message(role="system", content=system)] if system else []), *turns[start:]]


def assistant_message(call: Call) -> Message:
    """A completion as the conversation's next turn: its text and its calls.

    A local model's text contains its calls as markup, so it is the whole turn. An endpoint's text
    does not, and a local model that continues from there needs the calls written out. Thoughts are
    sent back to an endpoint that demands them, and in `raw_text`: the model's own chat template
    decides which of them to keep, and if it keeps them, the ids continue.
    """
    offered: dict[str, JsonObject] = {
        tool_call.name: {} for tool_call in call.tool_calls if tool_call.name
    }
    opened = call.begins_in_thought
    whole = not call.tool_calls or bool(written_calls(call.text, offered, opened=opened))
    return Message(
        role="assistant",
        content=strip_calls(call.text, offered, opened=opened) if call.tool_calls else call.said,
        tool_calls=call.tool_calls,
        raw_text=call.text if whole else None,
        thought=call.reasoning,
    )


def turn_messages(
    call: Call,
    entries: Sequence[JsonValue | JsonObject | None],
    answer_to: Callable[[int], str],
) -> list[Message]:
    """A completion and the answers to its tool calls, in the order of the calls.

    `answer_to(position)` returns the text for a call that was handed over.
    """
    if len(entries) != len(call.tool_calls):
        raise ValueError(f"{len(call.tool_calls)} tool calls, but {len(entries)} answers")
    messages = [assistant_message(call)]
    for position, (tool_call, entry) in enumerate(zip(call.tool_calls, entries, strict=True)):
        text = tool_text(entry["output"]) if isinstance(entry, dict) else answer_to(position)
        messages.append(Message(role="tool", content=text, tool_call_id=tool_call.id))
    return messages


def tool_text(output: JsonValue) -> str:
    """A tool's output as the model reads it. If it is too long for a message, it is truncated, with
    a marker."""
    text = whole_tool_text(output)
    if len(text) <= MAX_TOOL_MESSAGE_CHARS:
        return text
    prefix = text[:MAX_TOOL_MESSAGE_CHARS]
    return f"{prefix} [truncated: the first {len(prefix)} of {len(text)} characters]"


def whole_tool_text(output: JsonValue) -> str:
    """The plain result, or `error: …`."""
    if isinstance(output, dict):
        error = output.get("error")
        if isinstance(error, str):
            return f"error: {error}"
        if output.keys() == {"result"}:
            output = output["result"]
    return output if isinstance(output, str) else json.dumps(output, ensure_ascii=False)


def _missing_answer(position: int) -> str:
    raise ValueError(f"tool call {position} was handed over, yet the step continues")


def truncation_reason(call: Call) -> str | None:
    """Why a text is incomplete, if it is."""
    match call.finish_reason:
        case "length":
            limit = call.sampling.max_tokens
            where = "the model's own limit" if limit == NO_LIMIT else f"{limit} tokens"
            return f"the text was cut off at {where}"
        case "content_filter":
            return "the endpoint's content filter stopped the text"
        case "cancelled":
            return "the completion was cancelled"
        case _:
            return None


def _require_count(calls: Sequence[Call], wanted: int) -> None:
    if len(calls) != wanted:
        request = "one completion was" if wanted == 1 else f"{wanted} completions were"
        raise MalformedModelOutput(f"{request} asked for, {len(calls)} came back")
