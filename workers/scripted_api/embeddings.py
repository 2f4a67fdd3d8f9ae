"""The scripted server's vectors: each depends only on its text."""

from __future__ import annotations

import base64
import hashlib
import math
import struct
from typing import Any, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field

from loopline.agents.records import Usage

DIMENSIONS = 16
"""Dimensions of a vector if the request does not specify any."""


class EmbeddingsRequest(BaseModel):
    """Body of POST /v1/embeddings."""

    model_config = ConfigDict(extra="ignore")

    model: str
    input: str | list[str] | list[int] | list[list[int]]
    dimensions: int = Field(default=DIMENSIONS, ge=1, le=4096)
    encoding_format: Literal["float", "base64"] = "float"

    @property
    def inputs(self) -> list[str | list[int]]:
        if isinstance(self.input, str):
            return [self.input]
        ids = [item for item in self.input if isinstance(item, int)]
        return [ids] if ids else [item for item in self.input if not isinstance(item, int)]

    @property
    def content_hash(self) -> str:
        """A hash that is equal for equal requests to the same model."""
        key = f"{self.model}/{self.dimensions}/{self.inputs!r}"
        return hashlib.blake2b(key.encode(), digest_size=12).hexdigest()

    @property
    def usage(self) -> Usage:
        """A token: a word, or a token id."""
        counts = (len(i.split()) if isinstance(i, str) else len(i) for i in self.inputs)
        return Usage(prompt=sum(counts), completion=0, source="provider")


def vector_of(item: str | list[int], dimensions: int) -> list[float]:
    """Unit vector [dimensions] that depends only on the item."""
    seed = hashlib.blake2b(repr(item).encode()).digest()
    draws = [
        int.from_bytes(hashlib.blake2b(seed + struct.pack("<I", i), digest_size=4).digest()) / 2**32
        for i in range(dimensions)
    ]
    centred = [draw - 0.5 for draw in draws]
    length = math.sqrt(sum(value * value for value in centred))
    return [value / length for value in centred]


def embeddings_answer(request: EmbeddingsRequest, *, with_usage: bool = True) -> bytes:
    """Body of the answer."""
    vectors = [vector_of(item, request.dimensions) for item in request.inputs]
    tokens = request.usage.prompt
    body: dict[str, Any] = {
        "object": "list",
        "data": [
            {
                "object": "embedding",
                "index": index,
                "embedding": vector
                if request.encoding_format == "float"
                else base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode(),
            }
            for index, vector in enumerate(vectors)
        ],
        "model": request.model,
    }
    if with_usage:
        body["usage"] = {"prompt_tokens": tokens, "total_tokens": tokens}
    return orjson.dumps(body)
