"""Finds out what a chat template refuses when its model is loaded, and adapts conversations to it.

Some templates have no system turn (Gemma's). Some require user and assistant to alternate, and so
have no tool turns. Some accept only one call per turn (Llama 3's), only call ids of nine letters
and digits (Mistral's), or a system turn only as the first turn (Qwen3.5's). Refused parts are
written differently:

- the system's text is put before the text of the first user turn;
- the text of a later system turn is appended to that of the first one;
- ids are shortened;
- a tool's answer becomes a user turn;
- a call is written into the assistant's text;
- several calls at once are split into one turn each, followed by its answer.

A template that omits a call or a tool's answer is treated as if it refused it. A template that
omits the system's text does so on purpose: its model was trained without one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from loopline.agents.records import Message, ToolCall, ToolSpec
from loopline.workers.engines.text.tool_markup import write_tool_call

Render = Callable[[Sequence[Message], Sequence[ToolSpec]], str]


@dataclass(frozen=True)
class TemplateHabits:
    """What a template accepts."""

    system: bool = True
    tool_turns: bool = True
    calls: bool = True
    """Whether calls are in a separate field. A local model's turns have them in their text
    (`raw_text`)."""
    calls_at_once: bool = True
    long_ids: bool = True
    late_system: bool = True


EVERYTHING = TemplateHabits()


class TemplateRefuses(Exception):
    """A template refuses even a question, or every form of the conversations that roles need."""


_SYSTEM = Message(role="system", content="Rules xq1.")
_QUESTION = Message(role="user", content="Question xq2?")
_TOOL = ToolSpec(
    name="look_up",
    description="Looks a word up.",
    parameters={"type": "object", "properties": {"word": {"type": "string"}}},
)
# The format in which servers and this project write ids.
_CALLS = tuple(
    ToolCall(id=f"call_{n:024x}", name=_TOOL.name, arguments={"word": f"xq{n}"}) for n in (3, 4)
)
_ANSWERS = tuple(
    Message(role="tool", content=f"Found yq{n}.", tool_call_id=f"call_{n:024x}") for n in (3, 4)
)

_CONVERSATION = [_SYSTEM, _QUESTION, Message(role="assistant", tool_calls=_CALLS), *_ANSWERS]
_LATE_SYSTEM = Message(role="system", content="More rules.")


def habits_of(render: Render) -> TemplateHabits:
    """Render test conversations with the template. Raises `TemplateRefuses`."""
    habits = _habits_of(render)
    if not (habits.tool_turns and habits.calls):
        # It may refuse only the ids.
        shortened = _habits_of(lambda messages, tools: render(_shorten_ids(messages), tools))
        if (shortened.tool_turns, shortened.calls) != (habits.tool_turns, habits.calls):
            habits = replace(shortened, long_ids=False)
    turns = [_SYSTEM, _QUESTION, Message(role="assistant", content="Yes."), _LATE_SYSTEM, _QUESTION]
    late = not habits.system or _refusal(render, turns, "xq2") is None
    habits = replace(habits, late_system=late)
    whole = adapt_messages(_CONVERSATION, habits)
    refusal = _refusal(render, whole, "xq2", "yq3", "yq4")
    if refusal is not None:
        raise TemplateRefuses(
            f"its chat template refuses every conversation with a tool's answer: {refusal}"
        )
    return habits


def _habits_of(render: Render) -> TemplateHabits:
    refusal = _refusal(render, [_QUESTION], "xq2")
    if refusal is not None:
        raise TemplateRefuses(f"its chat template refuses a single question: {refusal}")
    single_call, both = (
        Message(role="assistant", tool_calls=calls) for calls in (_CALLS[:1], _CALLS)
    )
    written = Message(role="assistant", raw_text=write_tool_call(_TOOL.name, {"word": "xq3"}))
    takes_turns = _refusal(render, [_QUESTION, written, _ANSWERS[0]], "xq3", "yq3") is None
    tool_messages = (
        _ANSWERS if takes_turns else tuple(_tool_answer_as_user(message) for message in _ANSWERS)
    )
    calls = _refusal(render, [_QUESTION, single_call, tool_messages[0]], "xq3", "yq3") is None
    at_once = (
        _refusal(render, [_QUESTION, both, *tool_messages], "xq3", "xq4", "yq3", "yq4") is None
    )
    return TemplateHabits(
        system=_refusal(render, [_SYSTEM, _QUESTION], "xq2") is None,
        tool_turns=takes_turns,
        calls=calls,
        # Calls in the text, or answers in one user turn, are not limited in number.
        calls_at_once=at_once or not calls,
    )


def _refusal(render: Render, messages: Sequence[Message], *words: str) -> str | None:
    """Why a template's rendering of a conversation lacks these words; None if it has them all."""
    tools = [_TOOL] if any(message.tool_calls for message in messages) else []
    try:
        rendered = render(messages, tools)
    except Exception as error:  # noqa: BLE001 - a template from outside raises what it likes
        return str(error) or type(error).__name__
    left_out = next((word for word in words if word not in rendered), None)
    return None if left_out is None else "it leaves out a part of the conversation"


def adapt_messages(messages: Sequence[Message], habits: TemplateHabits) -> list[Message]:
    """The conversation in a form that a template with these habits accepts."""
    shaped = list(messages)
    if not habits.long_ids:
        shaped = _shorten_ids(shaped)
    if not habits.late_system:
        shaped = move_system_first(shaped)
    if not habits.calls_at_once:
        shaped = _split_calls(shaped)
    if not habits.calls:
        shaped = [_write_calls_as_text(message) for message in shaped]
    if not habits.tool_turns:
        shaped = _merge_user_turns([_tool_answer_as_user(message) for message in shaped])
    return shaped if habits.system else _fold_system_message(shaped)


def _shorten_ids(messages: Sequence[Message]) -> list[Message]:
    return [
        message.model_copy(
            update={
                "tool_calls": tuple(
                    call.model_copy(update={"id": short_id(call.id)}) for call in message.tool_calls
                ),
                "tool_call_id": message.tool_call_id and short_id(message.tool_call_id),
            }
        )
        for message in messages
    ]


def short_id(identifier: str) -> str:
    """Nine letters and digits, always the same for the same id."""
    return hashlib.blake2b(identifier.encode(), digest_size=5).hexdigest()[:9]


def move_system_first(messages: Sequence[Message]) -> list[Message]:
    """Merge the texts of all system turns into one first turn."""
    texts = [message.content for message in messages if message.role == "system"]
    others = [message for message in messages if message.role != "system"]
    return [Message(role="system", content="\n\n".join(texts)), *others] if texts else others


def _split_calls(messages: Sequence[Message]) -> list[Message]:
    shaped: list[Message] = []
    answers = {m.tool_call_id: m for m in messages if m.role == "tool" and m.tool_call_id}
    placed: set[str] = set()
    for message in messages:
        # A turn with its raw text has no separate calls that the template could refuse.
        if len(message.tool_calls) > 1 and message.raw_text is None:
            for place, call in enumerate(message.tool_calls):
                content = message.content if place == 0 else ""
                shaped.append(Message(role="assistant", content=content, tool_calls=(call,)))
                if call.id in answers:
                    shaped.append(answers[call.id])
                    placed.add(call.id)
        elif message.role != "tool" or message.tool_call_id not in placed:
            shaped.append(message)
    return shaped


def _write_calls_as_text(message: Message) -> Message:
    if not message.tool_calls or message.raw_text is not None:
        return message
    calls = [write_tool_call(call.name, call.arguments or {}) for call in message.tool_calls]
    content = "\n".join(filter(None, [message.content, *calls]))
    return Message(role="assistant", content=content)


def _tool_answer_as_user(message: Message) -> Message:
    """A tool's answer as a user turn."""
    if message.role != "tool":
        return message
    return Message(role="user", content=f"Tool result: {message.content}")


def _merge_user_turns(messages: Sequence[Message]) -> list[Message]:
    """Merge consecutive user turns."""
    shaped: list[Message] = []
    for message in messages:
        if shaped and shaped[-1].role == message.role == "user":
            content = f"{shaped[-1].content}\n{message.content}"
            shaped[-1] = Message(role="user", content=content)
        else:
            shaped.append(message)
    return shaped


def _fold_system_message(messages: Sequence[Message]) -> list[Message]:
    texts = [message.content for message in messages if message.role == "system"]
    shaped = [message for message in messages if message.role != "system"]
    if not texts:
        return shaped
    for place, message in enumerate(shaped):
        if message.role == "user":
            content = "\n\n".join([*texts, message.content])
            shaped[place] = message.model_copy(update={"content": content})
            return shaped
    return [Message(role="user", content="\n\n".join(texts)), *shaped]
