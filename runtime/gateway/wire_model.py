"""The base class of clients' request bodies: an unknown field is refused by name unless it is null.

Clients in statically typed languages write every field of their library, with null for unset
fields; such a null requests nothing.
"""

from __future__ import annotations

from typing import Any, cast

from pydantic import BaseModel, ConfigDict, model_validator


class WireModel(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    @model_validator(mode="before")
    @classmethod
    def _drop_unset(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        body = cast("dict[str, Any]", value)
        # Most bodies have no null and are read unchanged.
        if None not in body.values():
            return body
        listed = {name for key, field in cls.model_fields.items() for name in (key, field.alias)}
        return {key: item for key, item in body.items() if item is not None or key in listed}
