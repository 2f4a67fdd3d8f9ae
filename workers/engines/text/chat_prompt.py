"""Builds the prompt ids of a conversation without tokenizing the same text twice.

A later turn of a conversation includes the ids of the earlier one. If the newly rendered text
starts with the text of those ids, the prompt is those ids plus the tokens of the rest, and the call
extends the earlier sample. Otherwise (another history, a template that rewrites earlier turns, ids
of another model), the whole prompt is tokenized and a new sample starts.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from pydantic import JsonValue

from loopline.agents.records import JsonObject, Message, ToolSpec
from loopline.agents.thinking import opens_thought


class TextCodec(Protocol):
    """A tokenizer, reduced to what a prompt needs.

    `after` is the preceding id, None at the beginning of a text: with some tokenizers, a piece
    depends on it. `decode(a + b)` must equal `decode(a) + decode(b, after=a[-1])` for every split
    between two characters.
    """

    def encode(self, text: str, after: int | None = None) -> list[int]: ...

    def decode(self, ids: Sequence[int], after: int | None = None) -> str: ...


@dataclass(frozen=True)
class Prompt:
    """Ids to feed the model, and whether they start with an earlier call's ids."""

    ids: list[int]
    extends_previous: bool
    reused: int = 0
    """Number of ids that come from the earlier call."""
    opens_thought: bool = False
    """The template opened a thought at the prompt's end, and the completion starts inside it."""


def build_prompt(rendered: str, previous_ids: Sequence[int], codec: TextCodec) -> Prompt:
    """Ids of `rendered`, extending `previous_ids` if their text is a prefix of it."""
    thinks = opens_thought(rendered)
    if previous_ids:
        before = codec.decode(previous_ids)
        if rendered.startswith(before):
            rest = rendered[len(before) :]
            ids = [*previous_ids, *(codec.encode(rest, previous_ids[-1]) if rest else [])]
            return Prompt(ids, True, len(previous_ids), opens_thought=thinks)
    return Prompt(codec.encode(rendered), extends_previous=False, opens_thought=thinks)


def template_messages(
    messages: Sequence[Message], control: Collection[str] = ()
) -> list[dict[str, object]]:
    """The conversation in the format of chat templates.

    For an assistant turn with `raw_text`, only that text is used: it already has the tool-call
    markup that the template would otherwise write again. `control` are the tokenizer's control
    tokens: in texts of users, tools and other models a space breaks them up. Otherwise a question
    could end its own turn and speak as the system.
    """
    shaped: list[dict[str, object]] = []
    for message in messages:
        content = message.content
        if message.role != "system":
            content = as_plain_text(content, control)
        entry: dict[str, object] = {"role": message.role, "content": content}
        if message.raw_text is not None:
            entry["content"] = message.raw_text
        elif message.tool_calls:
            entry["tool_calls"] = [
                {
                    "id": as_plain_text(call.id, control),
                    "type": "function",
                    "function": {
                        "name": as_plain_text(call.name, control),
                        "arguments": _plain_value(call.arguments or {}, control),
                    },
                }
                for call in message.tool_calls
            ]
        if message.tool_call_id is not None:
            entry["tool_call_id"] = as_plain_text(message.tool_call_id, control)
        if message.name is not None:
            entry["name"] = as_plain_text(message.name, control)
        shaped.append(entry)
    return shaped


def looks_like_control(token: str) -> bool:
    """Whether an added token marks a turn although its tokenizer does not label it as special, such
    as DeepSeek's `<｜User｜>`. llama.cpp's converter has this rule."""
    return any(token.startswith(f"<{bar}") and token.endswith(f"{bar}>") for bar in "|｜")


def as_plain_text(text: str, control: Collection[str]) -> str:
    """The text without control tokens: a space breaks each of them up."""
    for token in control:
        text = text.replace(token, f"{token[0]} {token[1:]}")
    return text


def _plain_value(value: JsonValue, control: Collection[str]) -> JsonValue:
    """Apply `as_plain_text` to every text in a JSON value, including member names."""
    if isinstance(value, str):
        return as_plain_text(value, control)
    if isinstance(value, dict):
        return {
            as_plain_text(key, control): _plain_value(inner, control)
            for key, inner in value.items()
        }
    return [_plain_value(inner, control) for inner in value] if isinstance(value, list) else value


def template_tools(
    tools: Sequence[ToolSpec], control: Collection[str] = ()
) -> list[JsonObject] | None:
    """The offered tools in the format of chat templates and endpoints; `None` if there are none.
    Their texts are not trusted: for `control`, see `template_messages`."""
    if not tools:
        return None
    return [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                "description": as_plain_text(tool.description, control),
                "parameters": _plain_value(tool.parameters, control),
            },
        }
        for tool in tools
    ]
