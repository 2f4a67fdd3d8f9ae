"""What a chat template refuses, tried when its model is loaded, and conversations that suit it.

Some templates know no system turn (Gemma's), some want user and assistant to take turns and so no
turn of a tool, some take one call at once (Llama 3's), some ids of calls of nine letters and digits
alone (Mistral's), some a system turn as the first one alone (Qwen3.5's). What is refused is said in
another way:

- the system's text stands in front of the first user's turn;
- a later system's turn stands behind the first one's text;
- an id is a shorter one;
- a tool's answer is a user's turn;
- a call is written into the assistant's text;
- of several calls at once each has a turn of its own, with its answer behind it.

A template that leaves a call or a tool's answer out counts as one that refuses it. One that leaves
the system's text out does so on purpose: its model was trained without.
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
    """What a template takes."""

    system: bool = True
    tool_turns: bool = True
    calls: bool = True
    """Whether calls go in a separate field. A local model's turns have theirs in their text
    (`raw_text`)."""
    calls_at_once: bool = True
    long_ids: bool = True
    late_system: bool = True


EVERYTHING = TemplateHabits()


class TemplateRefuses(Exception):
    """A template takes not even a question, or no form of a conversation that roles hold."""


_SYSTEM = Message(role="system", content="Rules xq1.")
_ASKED = Message(role="user", content="Question xq2?")
_TOOL = ToolSpec(
    name="look_up",
    description="Looks a word up.",
    parameters={"type": "object", "properties": {"word": {"type": "string"}}},
)
# As servers and this project write ids.
_CALLS = tuple(
    ToolCall(id=f"call_{n:024x}", name=_TOOL.name, arguments={"word": f"xq{n}"}) for n in (3, 4)
)
_SEEN = tuple(
    Message(role="tool", content=f"Found yq{n}.", tool_call_id=f"call_{n:024x}") for n in (3, 4)
)

_WHOLE = [_SYSTEM, _ASKED, Message(role="assistant", tool_calls=_CALLS), *_SEEN]
_LATER = Message(role="system", content="More rules.")


def habits_of(render: Render) -> TemplateHabits:
    """Try the template. Raises `TemplateRefuses`."""
    habits = _habits_of(render)
    if not (habits.tool_turns and habits.calls):
        # It may be the ids that it refuses.
        shortened = _habits_of(lambda messages, tools: render(_shorten_ids(messages), tools))
        if (shortened.tool_turns, shortened.calls) != (habits.tool_turns, habits.calls):
            habits = replace(shortened, long_ids=False)
    later = [_SYSTEM, _ASKED, Message(role="assistant", content="Yes."), _LATER, _ASKED]
    late = not habits.system or _refusal(render, later, "xq2") is None
    habits = replace(habits, late_system=late)
    whole = adapt_messages(_WHOLE, habits)
    refusal = _refusal(render, whole, "xq2", "yq3", "yq4")
    if refusal is not None:
        raise TemplateRefuses(
            f"its chat template takes no conversation with a tool's answer in any form: {refusal}"
        )
    return habits


def _habits_of(render: Render) -> TemplateHabits:
    refusal = _refusal(render, [_ASKED], "xq2")
    if refusal is not None:
        raise TemplateRefuses(f"its chat template refuses a question alone: {refusal}")
    single_call, both = (
        Message(role="assistant", tool_calls=calls) for calls in (_CALLS[:1], _CALLS)
    )
    written = Message(role="assistant", raw_text=write_tool_call(_TOOL.name, {"word": "xq3"}))
    takes_turns = _refusal(render, [_ASKED, written, _SEEN[0]], "xq3", "yq3") is None
    tool_messages = (
        _SEEN if takes_turns else tuple(_tool_answer_as_user(message) for message in _SEEN)
    )
    calls = _refusal(render, [_ASKED, single_call, tool_messages[0]], "xq3", "yq3") is None
    at_once = _refusal(render, [_ASKED, both, *tool_messages], "xq3", "xq4", "yq3", "yq4") is None
    return TemplateHabits(
        system=_refusal(render, [_SYSTEM, _ASKED], "xq2") is None,
        tool_turns=takes_turns,
        calls=calls,
        # Written into the text, or told by a user in one turn, there is nothing to count.
        calls_at_once=at_once or not calls,
    )


def _refusal(render: Render, messages: Sequence[Message], *words: str) -> str | None:
    """Why a template does not say these words of a conversation; None if it does."""
    tools = [_TOOL] if any(message.tool_calls for message in messages) else []
    try:
        rendered = render(messages, tools)
    except Exception as error:  # noqa: BLE001 - a template from outside raises what it likes
        return str(error) or type(error).__name__
    left_out = next((word for word in words if word not in rendered), None)
    return None if left_out is None else "it leaves out a part of what it is given"


def adapt_messages(messages: Sequence[Message], habits: TemplateHabits) -> list[Message]:
    """The conversation in a form that such a template takes."""
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
    """Nine letters and digits that are the same for the same id."""
    return hashlib.blake2b(identifier.encode(), digest_size=5).hexdigest()[:9]


def move_system_first(messages: Sequence[Message]) -> list[Message]:
    """One system turn, the first one, with the text of all."""
    texts = [message.content for message in messages if message.role == "system"]
    others = [message for message in messages if message.role != "system"]
    return [Message(role="system", content="\n\n".join(texts)), *others] if texts else others


def _split_calls(messages: Sequence[Message]) -> list[Message]:
    shaped: list[Message] = []
    answers = {m.tool_call_id: m for m in messages if m.role == "tool" and m.tool_call_id}
    placed: set[str] = set()
    for message in messages:
        # With its text as it was written there are no calls for the template to count.
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
    """A tool's answer as a user tells it."""
    if message.role != "tool":
        return message
    return Message(role="user", content=f"Tool result: {message.content}")


def _merge_user_turns(messages: Sequence[Message]) -> list[Message]:
    """Merge consecutive turns of users into one turn."""
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
