"""A tool's answer on the wire: a JSON object of limited length."""

from __future__ import annotations

import json

from pydantic import TypeAdapter

from loopline.agents.records import JsonObject

MAX_OUTPUT_CHARS = 20_000
"""Default limit of a tool's answer: some 5,000 tokens, more than a model's turn can use."""
SHOWN_CHARS = 200
"""Most characters of an error that a tool did not word itself."""

_OBJECT: TypeAdapter[JsonObject] = TypeAdapter(JsonObject)


def as_answer(name: str, value: object, max_output_chars: int) -> JsonObject:
    """`{"result": value}`, or the value itself if it is an object.

    A text that is too long is cut and says so; anything else that is too long, or not JSON, is
    answered with an error.
    """
    if isinstance(value, str) and len(value) > max_output_chars:
        return cut_text(value, max_output_chars, len(value))
    whole = value if isinstance(value, dict) else {"result": value}
    try:
        encoded = json.dumps(whole, allow_nan=False)
        answer = _OBJECT.validate_json(encoded)
    except (TypeError, ValueError) as error:
        return {"error": f"{name} gave a result that is not JSON: {error}"[:SHOWN_CHARS]}
    if not isinstance(value, str) and len(encoded) > max_output_chars + SHOWN_CHARS:
        return {
            "error": f"{name} gave {len(encoded)} characters, at most {max_output_chars} are "
            "allowed"
        }
    return answer


def cut_text(text: str, max_output_chars: int, full_chars: int) -> JsonObject:
    """The beginning of a text of `full_chars` characters, which says that it is only that."""
    prefix = replace_surrogates(text[:max_output_chars])
    return {"result": prefix, "truncated": True, "full_chars": full_chars}


def error_answer(text: str) -> JsonObject:
    """An error as a tool's answer, cut."""
    return {"error": replace_surrogates(text[:SHOWN_CHARS])}


def replace_surrogates(text: str) -> str:
    """The text as a message can carry it: half a surrogate pair becomes a question mark."""
    return text.encode(errors="replace").decode()
