"""Converts an MCP tool's result to the text that a model reads."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import mcp_types as types

from loopline.agents.tools import ToolFailed

_FAILED = "the tool failed and said nothing"


def plain_result(result: dict[str, Any]) -> dict[str, Any]:
    """A result reduced to one text: the texts of its parts, and notes about hidden parts.

    The structured value follows the texts, unless they already contain it.
    """
    if result.get("resultType", "complete") != "complete":
        return result  # not a result yet: the server asks for input
    keys = [key for key in ("content", "structuredContent", "toolResult") if key in result]
    parts = [part for block in _blocks(result.get("content")) if (part := _block(block))]
    for key in ("structuredContent", "toolResult"):  # `toolResult` is older
        value = result.get(key)
        if value is not None and not _contains_value(parts, value):
            parts.append(value if isinstance(value, str) else _json(value))
    failed = result.get("isError") is True
    if not keys:
        parts, failed = ["the server's answer has no content"], True
    text = "\n".join(parts)
    plain = {"content": [{"type": "text", "text": text}], "isError": failed}
    return {**plain, **{key: result[key] for key in ("resultType", "_meta") if key in result}}


def text_of(result: types.CallToolResult) -> str:
    """The text of a plain result. Raises `ToolFailed` for one that is marked as an error."""
    text = "\n".join(block.text for block in result.content if isinstance(block, types.TextContent))
    if result.is_error:
        raise ToolFailed(text or _FAILED)
    return text


def _blocks(content: Any) -> list[Any]:
    if content is None:
        return []
    return content if isinstance(content, list) else [content]


def _block(block: Any) -> str:
    if not isinstance(block, dict):
        return block if isinstance(block, str) else _json(block)
    kind = block.get("type", "text" if "text" in block else None)
    match kind:
        case "text":
            text = block.get("text")
            return text if isinstance(text, str) else _json(text)
        case "image" | "audio":
            return _omitted_note(block.get("mimeType") or kind, block.get("data"))
        case "resource":
            resource = block.get("resource")
            inner: dict[str, Any] = resource if isinstance(resource, dict) else {}
            text = inner.get("text")
            if isinstance(text, str):
                return text
            return _omitted_note(inner.get("mimeType") or "binary", inner.get("blob"))
        case "resource_link":
            return f"[resource {block.get('name')}: {block.get('uri')}]"
        case _:
            return f"[{str(kind)[:64]}: not shown]"


def _omitted_note(kind: Any, data: Any) -> str:
    size = len(data) * 3 // 4 if isinstance(data, str) else 0
    return f"[{str(kind)[:64]}, {size} bytes: not shown]"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _contains_value(parts: list[str], value: Any) -> bool:
    """Whether the texts already are this value: as JSON, or wrapped the way servers wrap values
    that are not objects, or one text per list item."""
    values = [*map(_value, parts)]
    candidates: list[Any] = [*values, values, *parts, "\n".join(parts)]
    wrapped = isinstance(value, dict) and [*value] == ["result"]
    return bool(parts) and (value in candidates or (wrapped and value["result"] in candidates))


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def error_reason(error: BaseException) -> str:
    """The first error, taken out of the exception groups of concurrent tasks."""
    leaves = list(_leaves(error))
    first = leaves[0] if leaves else error
    return f"{type(first).__name__}: {first}"[:300]


def _leaves(error: BaseException) -> Iterable[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error
