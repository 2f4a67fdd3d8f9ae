"""Items of the Responses API, and their conversion to and from the messages of runs.

A model's answer consists of up to three kinds of separate items: its thoughts, its message, its
calls. In a conversation they are one message of the assistant.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from loopline.agents.message_parts import ContentPart
from loopline.agents.records import Call, JsonObject, Message, ToolCall
from loopline.agents.tools.json_arguments import parse_arguments
from loopline.agents.visible_text import VisibleText
from loopline.runtime.gateway.chat_request import MAX_MESSAGES, TextFormat
from loopline.runtime.gateway.chat_response import Choice, content_of, logprobs_of
from loopline.runtime.gateway.compaction import summary_text
from loopline.runtime.gateway.content_parts import (
    ImageDetail,
    image_part,
    input_parts,
    user_message,
)
from loopline.runtime.gateway.errors import ApiError, invalid, validated
from loopline.runtime.gateway.responses_tools import (
    ToolForm,
    arguments_of_text,
    call_fields,
    function_name,
)
from loopline.runtime.gateway.wire_model import WireModel

ItemKind = Literal["reasoning", "content"]
"""Kind of an output item that receives a model's streamed text, named as in `TextPiece.kind`."""


_Status = Literal["in_progress", "completed", "incomplete"] | None
_Id = Annotated[str, Field(max_length=256)]


class _Item(WireModel):
    """Item that a client sends; it may come from a server and contain that server's fields."""

    model_config = ConfigDict(extra="ignore")

    id: _Id | None = None
    status: _Status = None


class MessageItem(_Item):
    type: Literal["message"] = "message"
    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[Any]


class _CallItem(_Item):
    call_id: str = Field(min_length=1, max_length=256)
    name: str = Field(max_length=256)
    namespace: str | None = Field(default=None, max_length=256)
    extra_content: JsonObject | None = None


class FunctionCallItem(_CallItem):
    type: Literal["function_call"]
    arguments: str


class CustomCallItem(_CallItem):
    type: Literal["custom_tool_call"]
    input: str


class CallOutputItem(_Item):
    type: Literal["function_call_output", "custom_tool_call_output"]
    call_id: str = Field(min_length=1, max_length=256)
    output: str | list[Any]


class ReasoningItem(_Item):
    """Thoughts. They are sent back only to an endpoint that demands them: a response that continues
    another one uses the model's own text, and the model's chat template decides which thoughts to
    keep."""

    type: Literal["reasoning"]
    content: list[Any] | None = None

    @property
    def text(self) -> str:
        parts = (part for part in self.content or () if isinstance(part, dict))
        texts = (cast("dict[str, Any]", part).get("text") for part in parts)
        return "\n\n".join(text for text in texts if isinstance(text, str))


class CompactionItem(_Item):
    """Item that `POST /v1/responses/compact` returned for a conversation."""

    type: Literal["compaction"]
    encrypted_content: str


class ItemReference(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    type: Literal["item_reference"] | None = None
    id: str = Field(min_length=1, max_length=256)


class _TextPart(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    type: Literal["input_text", "output_text", "text"]
    text: str


class _ImagePart(WireModel):
    """Image given by its URL, since files are not stored here."""

    type: Literal["input_image"]
    image_url: str
    detail: ImageDetail | None = None
    file_id: None = None
    prompt_cache_breakpoint: JsonValue = None
    """Marker for the end of a prompt's cached part. Caches here find it themselves."""


class _RefusalPart(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    type: Literal["refusal"]
    refusal: str


Item = (
    MessageItem
    | FunctionCallItem
    | CustomCallItem
    | CallOutputItem
    | ReasoningItem
    | CompactionItem
    | ItemReference
)

_ITEMS: dict[str, type[Item]] = {
    "message": MessageItem,
    "function_call": FunctionCallItem,
    "function_call_output": CallOutputItem,
    "custom_tool_call": CustomCallItem,
    "custom_tool_call_output": CallOutputItem,
    "reasoning": ReasoningItem,
    "compaction": CompactionItem,
    "item_reference": ItemReference,
}


def items_of(body: str | list[Any]) -> list[Item]:
    """Parse a request's input. Raises `ApiError` with the position of the wrong item."""
    if isinstance(body, str):
        return [MessageItem(role="user", content=body)]
    if len(body) > MAX_MESSAGES:
        raise invalid(f"input has {len(body)} items; the limit is {MAX_MESSAGES}", "input")
    return [_item(value, f"input[{index}]") for index, value in enumerate(body)]


def _item(value: Any, where: str) -> Item:
    if not isinstance(value, dict):
        raise invalid(f"Invalid value for '{where}': an item is an object", where, "invalid_value")
    item: dict[str, Any] = value  # pyright: ignore[reportUnknownVariableType]
    kind = item.get("type")
    if kind is None:
        kind = "message" if "role" in item else "item_reference"
    model = _ITEMS.get(kind) if isinstance(kind, str) else None
    if model is None:
        raise invalid(
            f"an item of type {str(kind)[:64]!r} is not accepted here; accepted types:"
            f" {', '.join(_ITEMS)}",
            f"{where}.type",
            "unsupported_value",
        )
    return validated(model, item, where)


def messages_of(items: Sequence[Item]) -> tuple[Message, ...]:
    """Return the conversation. Raises `ApiError` for a part that no model here accepts."""
    messages: list[Message] = []
    thought, last = "", None

    def add_to_turn(**fields: Any) -> None:
        """Add to the assistant's turn, which has a text after its calls at most once."""
        nonlocal thought
        if last is None or ("content" in fields and (last.content or not last.tool_calls)):
            messages.append(Message(role="assistant", thought=thought, **fields))
        else:
            whole = "\n\n".join(filter(None, (last.thought, thought)))
            messages[-1] = last.model_copy(update={"thought": whole, **fields})
        thought = ""

    for index, item in enumerate(items):
        where = f"input[{index}]"
        last = messages[-1] if messages and messages[-1].role == "assistant" else None
        match item:
            case MessageItem(role="assistant"):
                add_to_turn(content=_text(item.content, f"{where}.content", "assistant"))
            case MessageItem():
                role = "user" if item.role == "user" else "system"
                parts = _parts(item.content, f"{where}.content")
                messages.append(user_message(parts, f"{where}.content", role=role))
                thought = ""
            case FunctionCallItem() | CustomCallItem():
                add_to_turn(tool_calls=(*(last.tool_calls if last else ()), _tool_call(item)))
            case CallOutputItem():
                text = _text(item.output, f"{where}.output", "tool")
                messages.append(Message(role="tool", content=text, tool_call_id=item.call_id))
            case ReasoningItem():
                thought = item.text
            case CompactionItem():
                text = summary_text(item.encrypted_content, where)
                messages.append(Message(role="assistant", content=text))
            case ItemReference():
                raise invalid(f"Item '{item.id}' not found.", f"{where}.id", "item_not_found")
    return tuple(messages)


def forms_of(items: Sequence[Item]) -> dict[str, ToolForm]:
    """Return the forms of the called tools that are not just functions."""
    forms: dict[str, ToolForm] = {}
    for item in items:
        if not isinstance(item, FunctionCallItem | CustomCallItem):
            continue
        text = TextFormat(type="text") if isinstance(item, CustomCallItem) else None
        if item.namespace is not None or text is not None:
            form = ToolForm(name=item.name, namespace=item.namespace, input=text)
            forms[function_name(item.name, item.namespace)] = form
    return forms


def outputs_after_calls(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return the conversation with each tool's output directly after its call, as models expect it.
    OpenAI's API accepts other items in between, which Codex and LiveKit send."""
    groups: list[list[Message]] = []
    group_of: dict[str | None, list[Message]] = {}
    for message in messages:
        group = group_of.pop(message.tool_call_id, None) if message.role == "tool" else None
        if group is not None:
            group.append(message)
            continue
        groups.append([message])
        group_of.update((call.id, groups[-1]) for call in message.tool_calls)
    return tuple(message for group in groups for message in group)


def check_calls(messages: Sequence[Message]) -> None:
    """Check that each tool call is answered once, before any other message, and that each answer
    belongs to a call. Raises `ApiError`."""
    waiting: dict[str, None] = {}
    for message in messages:
        if message.role == "tool":
            if message.tool_call_id not in waiting:
                raise invalid(
                    "No tool call found for function call output with call_id"
                    f" {message.tool_call_id}.",
                    "input",
                )
            del waiting[message.tool_call_id]
            continue
        if waiting:
            break
        waiting = dict.fromkeys(call.id for call in message.tool_calls)
    if waiting:
        raise invalid(f"No tool output found for function call {next(iter(waiting))}.", "input")


def _tool_call(item: FunctionCallItem | CustomCallItem) -> ToolCall:
    is_custom = isinstance(item, CustomCallItem)
    written = arguments_of_text(item.input) if is_custom else item.arguments
    arguments, error = parse_arguments(written or "{}")
    return ToolCall(
        id=item.call_id,
        name=function_name(item.name, item.namespace),
        arguments=arguments,
        raw_arguments=written,
        error=error,
        extra_content=item.extra_content,
    )


def _text(content: str | list[Any], where: str, role: Literal["assistant", "tool"]) -> str:
    """Return the text of a message of this role. Raises `ApiError` for anything else."""
    return user_message(_parts(content, where), where, role=role).content


def _parts(content: str | list[Any], where: str) -> list[ContentPart]:
    if isinstance(content, str):
        return [ContentPart(type="text", text=content)]
    parts: list[ContentPart] = []
    for index, part in enumerate(content):
        place = f"{where}[{index}]"
        kind: Any = part.get("type") if isinstance(part, dict) else None  # pyright: ignore
        if kind == "refusal":
            text = validated(_RefusalPart, part, place).refusal
            parts.append(ContentPart(type="text", text=text))
        elif kind in ("input_text", "output_text", "text"):
            parts.append(ContentPart(type="text", text=validated(_TextPart, part, place).text))
        elif kind == "input_image":
            image = validated(_ImagePart, part, place)
            parts.append(image_part(image.image_url, image.detail, f"{place}.image_url"))
        elif not isinstance(kind, str):
            raise invalid(
                f"Invalid value for '{place}': a part is an object with a 'type'",
                place,
                "invalid_value",
            )
        else:
            raise invalid(
                f"content of type {kind[:64]!r}: the models here take text and images",
                place,
                "unsupported_value",
            )
    return parts


# Items of a run's answer


def message_id(run_id: str) -> str:
    return f"msg_{run_id}"


def reasoning_id(run_id: str) -> str:
    return f"rs_{run_id}"


def call_id(run_id: str, position: int) -> str:
    return f"fc_{run_id}_{position}"


def run_of_item(item_id: str) -> str | None:
    """Return the id of the run that produced an item."""
    kind, _, rest = item_id.partition("_")
    return rest.partition("_")[0] if kind in ("msg", "rs", "fc", "in") else None


def message_item(
    run_id: str, text: str, *, status: str = "completed", logprobs: list[Any] | None = None
) -> dict[str, Any]:
    return {
        "id": message_id(run_id),
        "type": "message",
        "role": "assistant",
        "status": status,
        "content": [text_part(text, logprobs)],
    }


def text_part(text: str, logprobs: list[Any] | None = None) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs or []}


def reasoning_item(run_id: str, text: str) -> dict[str, Any]:
    return {
        "id": reasoning_id(run_id),
        "type": "reasoning",
        "summary": [],
        "content": [{"type": "reasoning_text", "text": text}],
        "status": "completed",
    }


def call_item(
    run_id: str, position: int, call: ToolCall, forms: Mapping[str, ToolForm]
) -> dict[str, Any]:
    return {"id": call_id(run_id, position), **call_fields(call, forms), "status": "completed"}


def text_order(choice: Choice, *, streamed: bool) -> list[ItemKind]:
    """Return the kinds of items for a choice's text, in order.

    A stream shows a model's text as it arrives. Thoughts that an endpoint returns in a separate
    field are only known at the end, so they come last if there was a stream.
    """
    kinds: list[ItemKind] = ["reasoning"] if choice.reasoning else []
    if choice.message.content or not choice.message.tool_calls:
        kinds.append("content")
    if len(kinds) == 2 and streamed and choice.call is not None:
        kinds.sort(key=_first_kinds(choice.call).index)
    return kinds


def _first_kinds(call: Call) -> list[ItemKind]:
    offered = tuple({tool_call.name for tool_call in call.tool_calls})
    visible = VisibleText(opened=call.begins_in_thought, offered=offered)
    pieces = [*visible.feed(call.text), *visible.finish()]
    return list(dict.fromkeys([*(p.kind for p in pieces if p.text), "content", "reasoning"]))


def output_items(
    run_id: str,
    choice: Choice,
    order: Sequence[ItemKind],
    *,
    logprobs: bool,
    forms: Mapping[str, ToolForm],
) -> list[dict[str, Any]]:
    """Return the items of an answer. `forms`: see `DeclaredTools`."""
    status = "incomplete" if choice.finish_reason in ("length", "content_filter") else "completed"
    token_logprobs = logprobs_of(choice.call) if logprobs else None
    items = {
        "reasoning": reasoning_item(run_id, choice.reasoning),
        "content": message_item(
            run_id,
            content_of(choice.message) or "",
            status=status,
            logprobs=token_logprobs["content"] if token_logprobs else None,
        ),
    }
    tool_calls = enumerate(choice.message.tool_calls)
    calls = [call_item(run_id, position, call, forms) for position, call in tool_calls]
    return [*(items[kind] for kind in order), *calls]


def input_items(
    run_id: str, messages: Sequence[Message], forms: Mapping[str, ToolForm]
) -> list[dict[str, Any]]:
    """Return a conversation as items, each with an id for use in an `item_reference`. `forms`: see
    `DeclaredTools`."""
    items: list[dict[str, Any]] = []
    kinds: dict[str | None, str] = {}

    def add(item: dict[str, Any]) -> None:
        items.append({"id": f"in_{run_id}_{len(items)}", **item, "status": "completed"})

    for message in messages:
        if message.role == "tool":
            add(
                {
                    "type": f"{kinds.get(message.tool_call_id, 'function_call')}_output",
                    "call_id": message.tool_call_id,
                    "output": message.content,
                }
            )
            continue
        if message.content or not message.tool_calls:
            is_answer = message.role == "assistant"
            content = [text_part(message.content)] if is_answer else input_parts(message)
            add({"type": "message", "role": message.role, "content": content})
        for call in message.tool_calls:
            fields = call_fields(call, forms)
            kinds[call.id] = fields["type"]
            add(fields)
    return items


def stored_item(item_id: str, items: Sequence[dict[str, Any]], where: str) -> Item:
    """Return the item with this id. Raises `ApiError`."""
    for item in items:
        if item["id"] == item_id:
            return _item(item, where)
    raise ApiError(
        404, f"Item with id '{item_id}' not found.", code="item_not_found", param=f"{where}.id"
    )
