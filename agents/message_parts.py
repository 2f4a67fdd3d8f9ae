"""Parts of a message that contains more than text."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field


class ContentPart(BaseModel):
    """A text or an image. Like every stored record, it keeps fields that this version does not
    know."""

    model_config = ConfigDict(frozen=True, extra="allow")

    type: Literal["text", "image"]
    text: str = ""
    url: str = ""
    """URL of an image, or `data:` with its bytes in base64."""
    detail: str | None = None
    """Level of detail for the model, in the endpoints' terms."""


Parts = Annotated[tuple[ContentPart, ...], Field(exclude_if=lambda parts: not parts)]
"""Parts of a message. Records of text-only messages omit them, as they did before parts existed."""
