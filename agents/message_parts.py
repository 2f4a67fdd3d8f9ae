"""Parts of a message that holds more than text."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field


class ContentPart(BaseModel):
    """A text or an image. As of every stored record, a field that is not known here stays."""

    model_config = ConfigDict(frozen=True, extra="allow")

    type: Literal["text", "image"]
    text: str = ""
    url: str = ""
    """Of an image: where it is, or `data:` with its bytes in base64."""
    detail: str | None = None
    """How closely the model is to look, as endpoints name it."""


Parts = Annotated[tuple[ContentPart, ...], Field(exclude_if=lambda parts: not parts)]
"""Records of messages that are text alone have no word of parts, as before there were any."""
