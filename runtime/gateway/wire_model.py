"""The base class of clients' request bodies: unknown fields are refused by name, null is unset.

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
        required = {
            field.alias or key for key, field in cls.model_fields.items() if field.is_required()
        }
        return {key: item for key, item in body.items() if item is not None or key in required}


def type_tag(value: Any) -> str:
    """Return the tag of an object's type, for a `Discriminator`. The brackets keep tags apart from
    fields of the same name in the paths of errors."""
    if isinstance(value, dict):
        return f"<{cast('dict[str, Any]', value).get('type')}>"
    return f"<{getattr(value, 'type', None)}>"
