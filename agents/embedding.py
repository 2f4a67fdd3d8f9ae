"""Embeddings as a completion: the single message's content is the request, and the text of the
answer is the vectors. So embeddings are sent, paid for and recorded like any other call."""

from __future__ import annotations

import base64
import sys
from array import array
from collections.abc import Iterable

from pydantic import Field

from loopline.agents.records import Message, Record

MAX_INPUTS = 2_048
"""Maximum number of inputs of one request, equal to OpenAI's limit."""
MAX_DIMENSIONS = 65_536


class EmbeddingInput(Record):
    """The inputs to embed."""

    input: tuple[str, ...] | tuple[tuple[int, ...], ...] = Field(
        min_length=1, max_length=MAX_INPUTS
    )
    """Texts, or the token ids of each text from the model's own tokenizer."""
    dimensions: int | None = Field(default=None, ge=1, le=MAX_DIMENSIONS)
    """Length of a vector, if the model can shorten vectors."""

    @property
    def message(self) -> Message:
        """The request as a message to the model's pool."""
        return Message(role="user", content=self.model_dump_json(exclude_defaults=True))

    @property
    def shown(self) -> str:
        """The question, as shown in lists of runs."""
        first = self.input[0]
        text = first if isinstance(first, str) else f"{len(first)} token ids"
        more = len(self.input) - 1
        return f"{text[:500]}{f' (and {more} more)' if more else ''}"


class EmbeddingVectors(Record):
    """One vector per input, in order."""

    dimensions: int
    vectors: tuple[str, ...]
    """Little-endian 32-bit floats in base64."""

    @property
    def shown(self) -> str:
        """The answer, as shown in lists of runs."""
        count = len(self.vectors)
        return f"{count} vector{'s' * (count != 1)} of {self.dimensions} dimensions"

    def floats(self) -> list[list[float]]:
        """[input, dimension]"""
        return [list(_native(array("f", base64.b64decode(vector)))) for vector in self.vectors]


def packed(values: Iterable[float]) -> str:
    """A vector in the format of `EmbeddingVectors`. Raises TypeError for anything but numbers."""
    return base64.b64encode(_native(array("f", values)).tobytes()).decode("ascii")


def _native(values: array[float]) -> array[float]:
    """Convert values in place between this machine's byte order and little-endian."""
    if sys.byteorder == "big":
        values.byteswap()
    return values
