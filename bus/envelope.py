"""The small typed message that travels on a work stream."""

from __future__ import annotations

from typing import Any

import pydantic
from pydantic import BaseModel, ConfigDict, Field

from loopline.bus.errors import MalformedEnvelope

FIELD = "e"
"""The only field of a stream entry: the envelope as JSON."""


class Envelope(BaseModel):
    """A message to a step (`run_id`, `turn`, `branch`); the registry types the payload by `type`
    and `type_version`. Fields that this version does not know are kept, because a retry writes the
    message again."""

    model_config = ConfigDict(frozen=True, extra="allow")

    type: str = Field(max_length=128)
    type_version: int = Field(default=1, ge=1)
    readable_from: int = Field(default=0, ge=0)
    """The oldest version whose readers may accept this payload; 0: only `type_version`'s."""
    handed_back: float = Field(default=0.0, ge=0)
    """Unix seconds when the first worker of another version handed the message back; 0: none
    has."""
    run_id: str = Field(max_length=64)
    turn: int = Field(default=0, ge=0)
    branch: int = Field(default=0, ge=0)
    attempt: int = Field(default=0, ge=0)
    """Number of explicit retries so far; Redis counts the deliveries separately."""
    deadline: float
    """Unix seconds."""
    traceparent: str = ""
    """W3C trace context of the work that this message requests (`loopline.bus.trace_context`)."""
    reply_key: str = ""
    """Idempotency key, if this is a request that expects a reply."""
    payload: dict[str, Any] = Field(default_factory=dict)

    @property
    def guard(self) -> str:
        """Names the step within its run; each step is committed once."""
        return f"{self.turn}.{self.branch}"

    def to_json(self) -> bytes:
        return self.__pydantic_serializer__.to_json(self)

    @classmethod
    def from_json(cls, data: bytes) -> Envelope:
        """Parse an envelope. Raises `MalformedEnvelope` naming the first problem."""
        try:
            return cls.model_validate_json(data)
        except pydantic.ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(str(part) for part in first["loc"]) or "the whole message"
            raise MalformedEnvelope(
                f"not an envelope: {where}: {first['msg']} ({len(data)} bytes)"
            ) from None
        except UnicodeDecodeError as error:
            raise MalformedEnvelope(f"not an envelope: not UTF-8: {error}") from None
