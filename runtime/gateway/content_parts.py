"""Images in a user's message: reads them from both APIs, and returns them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from loopline.agents.message_parts import ContentPart
from loopline.agents.records import Message
from loopline.runtime.gateway.errors import ApiError, invalid

ImageDetail = Literal["auto", "low", "high", "original"]
_SCHEMES = ("https://", "http://", "data:image/")
_MAX_URL_CHARS = 8_192
"""Maximum length of an image's external URL; the body's limit applies to embedded images."""


def image_part(url: str, detail: str | None, where: str) -> ContentPart:
    """Return the part for an image. Raises `ApiError` for an invalid URL."""
    if not url.startswith(_SCHEMES):
        raise invalid(
            "the address of an image must begin with https://, http:// or data:image/",
            where,
            "invalid_value",
        )
    if url.startswith("data:") and ";base64," not in url[:128]:
        raise invalid(
            "an inline image must be data:image/TYPE;base64,BYTES", where, "invalid_value"
        )
    if not url.startswith("data:") and len(url) > _MAX_URL_CHARS:
        raise invalid(
            f"the address of the image has more than {_MAX_URL_CHARS:,} characters",
            where,
            "invalid_value",
        )
    return ContentPart(type="image", url=url, detail=detail)


def user_message(parts: Sequence[ContentPart], where: str, **fields: Any) -> Message:
    """Return a message of these parts; without an image, only its text. Raises `ApiError` for an
    image in a message that is not a user's."""
    text = "\n".join(part.text for part in parts if part.type == "text")
    images = [index for index, part in enumerate(parts) if part.type == "image"]
    if not images:
        return Message(content=text, **fields)
    if fields["role"] != "user":
        raise invalid(
            f"a message of role {fields['role']!r} takes only text: only a user sends images",
            f"{where}[{images[0]}]",
            "unsupported_value",
        )
    return Message(content=text, parts=tuple(parts), **fields)


def input_parts(message: Message) -> list[dict[str, Any]]:
    """Return a message's content in the format of the Responses API."""
    if not message.parts:
        return [{"type": "input_text", "text": message.content}]
    return [
        {"type": "input_text", "text": part.text}
        if part.type == "text"
        else {"type": "input_image", "image_url": part.url, "detail": part.detail or "auto"}
        for part in message.parts
    ]


def text_only(what: str, param: str) -> ApiError:
    """Return the error for an image in a request that accepts none."""
    return invalid(
        f"{what} takes only text. A model of an endpoint takes images if its settings allow it: "
        "models.NAME.images = true",
        param,
        "unsupported_value",
    )
