"""What an MCP tool answered, as the text that a model reads."""

from __future__ import annotations

import json
from collections.abc import Iterable

import mcp_types as types

from agents.tools import ToolFailed


def text_of(result: types.CallToolResult) -> str:
    """Texts and text resources as they are, anything else by its kind and size; the structured
    value if there is no text. Raises `ToolFailed` for a result that says it is an error."""
    parts = [part for block in result.content if (part := _block(block))]
    if not parts and result.structured_content is not None:
        parts = [json.dumps(result.structured_content, ensure_ascii=False)]
    text = "\n".join(parts)
    if result.is_error:
        raise ToolFailed(text or "the tool failed and said nothing")
    return text


def _block(block: types.ContentBlock) -> str:
    match block:
        case types.TextContent():
            return block.text
        case types.ImageContent() | types.AudioContent():
            return _not_shown(block.mime_type, len(block.data) * 3 // 4)
        case types.EmbeddedResource(resource=types.TextResourceContents() as resource):
            return resource.text
        case types.EmbeddedResource(resource=types.BlobResourceContents() as resource):
            return _not_shown(resource.mime_type or "binary", len(resource.blob) * 3 // 4)
        case types.ResourceLink():
            return f"[resource {block.name}: {block.uri}]"
        case _:
            return ""


def _not_shown(kind: str, size: int) -> str:
    return f"[{kind}, {size} bytes: not shown]"


def reason_of(error: BaseException) -> str:
    """What went wrong, from within the groups that several tasks at once raise."""
    found = list(_leaves(error))
    first = found[0] if found else error
    return f"{type(first).__name__}: {first}"[:300]


def _leaves(error: BaseException) -> Iterable[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error
