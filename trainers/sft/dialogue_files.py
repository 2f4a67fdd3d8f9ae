"""Files of dialogues, as text, from which a model learns what to write.

A row has one of these forms, with the field names of OpenAI's API and of TRL:

    messages [, tools]              a conversation: every turn of the assistant is learned
    prompt, completion [, tools]    texts, or lists of messages: the completion's turns are learned
    question, answer                a user's message and the assistant's

The chat template and the tokenizer of the trained model convert messages to ids. In Parquet, tools
and tool calls may be JSON texts, as `runtime export --format hf` writes them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from loopline.agents.records import Message, ToolSpec
from loopline.runtime.gateway.chat_request import ChatMessage, Tool, message_of, tool_spec
from loopline.runtime.gateway.errors import ApiError
from loopline.trainers.data.data_files import read_records
from loopline.trainers.data.json_files import Limits, Reading, Unreadable, fit, parse
from loopline.trainers.data.token_rows import RecordedRow, RecordedRows
from loopline.trainers.distill.examples import TOO_LONG, conversation_row
from loopline.trainers.errors import UnreadableData
from loopline.workers.engines.torch.loading import LoadedModel

NO_TEXT = "message that is not text alone"
NO_TURN = "dialogue in which the assistant says nothing"
FORMS = "`messages`, or `prompt` and `completion`, or `question` and `answer`"
_LIMITS = Limits(file_bytes=8 * 2**30, line_bytes=16 * 2**20)


@dataclass(frozen=True)
class Dialogue:
    """One row of a file."""

    opening: tuple[Message, ...]
    """Messages that are read and not learned."""
    turns: tuple[Message, ...]
    """The following messages; the assistant's are learned."""
    tools: tuple[ToolSpec, ...] = ()


def read_rows(path: Path, model: LoadedModel) -> Reading[RecordedRow]:
    """Every dialogue in the ids of a model. Raises `UnreadableData` for an invalid Parquet file."""
    return read_records(path, lambda _, value: _row(dialogue_of(value), model), _LIMITS)


def require_rows(reading: Reading[RecordedRow], data: str) -> RecordedRows:
    """All rows. Raises `UnreadableData` if none is left."""
    if not reading.records:
        reasons = "; ".join(sorted({entry.reason for entry in reading.skipped}))
        raise UnreadableData(
            f"--data: no row of {data} can be learned from{f' ({reasons})' if reasons else ''}: "
            f"give rows with {FORMS}"
        )
    return RecordedRows(reading.records)


def dialogue_of(value: Any) -> Dialogue:
    """Parse a dialogue. Raises `Unreadable` for a row of another form."""
    match value:
        case {"messages": list()}:
            messages = _messages(value["messages"], "messages")
            first = next(
                (at for at, message in enumerate(messages) if message.role == "assistant"),
                len(messages),
            )
            opening, turns = messages[:first], messages[first:]
        case {"prompt": _, "completion": _}:
            opening = _messages(value["prompt"], "prompt", "user")
            turns = _messages(value["completion"], "completion", "assistant")
        case {"question": str(question), "answer": str() | int() | float() as answer}:
            opening = (Message(role="user", content=question),)
            turns = (Message(role="assistant", content=str(answer)),)
        case _:
            raise Unreadable("not the expected fields", f"a row has {FORMS}")
    if not any(message.role == "assistant" for message in turns):
        raise Unreadable(NO_TURN)
    return Dialogue(opening, turns, _tools(value.get("tools")))


def _row(dialogue: Dialogue, model: LoadedModel) -> RecordedRow:
    """Token ids of a dialogue. Raises `Unreadable`."""
    row = conversation_row(dialogue.opening, dialogue.tools, dialogue.turns, model)
    if len(row.ids) > model.max_context:
        raise Unreadable(TOO_LONG, f"{len(row.ids):,} tokens of {model.max_context:,}")
    opening = "\n".join(message.model_dump_json() for message in dialogue.opening)
    # Rows of one instruction are on the same side of a validation split.
    return RecordedRow(hashlib.sha256(opening.encode()).hexdigest()[:16], "", row)


def _messages(value: Any, field: str, role: str = "") -> tuple[Message, ...]:
    """Parse a list of messages or, with a role, that role's text."""
    if role and isinstance(value, str):
        value = [{"role": role, "content": value}]
    if not isinstance(value, list):
        raise Unreadable("not the expected fields", f"{field}: a list of messages")
    messages: list[Message] = []
    for at, entry in enumerate(cast(list[Any], value)):
        if not isinstance(entry, dict):
            raise Unreadable("not the expected fields", f"{field}[{at}]: a message is an object")
        try:
            message = fit(ChatMessage, _plain(cast(dict[str, Any], entry)))
            messages.append(message_of(message, f"{field}[{at}]"))
        except ApiError as error:
            raise Unreadable(NO_TEXT, str(error)) from error
        if messages[-1].parts:
            raise Unreadable(NO_TEXT, f"{field}[{at}] holds an image")
    return tuple(messages)


def _plain(entry: Mapping[str, Any]) -> dict[str, Any]:
    """The entry without the empty fields that a Parquet column adds because of other rows."""
    fields = {name: value for name, value in entry.items() if value is not None}
    if isinstance(calls := fields.get("tool_calls"), str):
        fields["tool_calls"] = parse(calls)
    return fields


def _tools(value: Any) -> tuple[ToolSpec, ...]:
    if isinstance(value, str):
        value = parse(value) if value else None
    if value is None:
        return ()
    if not isinstance(value, list):
        raise Unreadable("not the expected fields", "tools: a list of tools")
    return tuple(tool_spec(fit(Tool, entry).function) for entry in cast(list[Any], value))
