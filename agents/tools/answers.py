"""A tool's answer on the wire: a JSON object of limited length."""

from __future__ import annotations

import json

from pydantic import TypeAdapter

from loopline.agents.records import JsonObject

MAX_OUTPUT_CHARS = 20_000
"""Default limit of a tool's answer: about 5,000 tokens, more than a model's turn can use."""
SHOWN_CHARS = 200
"""Maximum number of characters of an error message that the tool did not write itself."""

_OBJECT: TypeAdapter[JsonObject] = TypeAdapter(JsonObject)


def as_answer(name: str, value: object, max_output_chars: int) -> JsonObject:
    """`{"result": value}`, or the value itself if it is an object.

    Text that is too long is truncated, with a note; any other value that is too long, or not JSON,
    is replaced by an error.
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
    """The start of a text of `full_chars` characters, with a note that it is truncated."""
    prefix = replace_surrogates(text[:max_output_chars])
    return {"result": prefix, "truncated": True, "full_chars": full_chars}


def error_answer(text: str) -> JsonObject:
    """An error as a tool's answer, truncated."""
    return {"error": replace_surrogates(text[:SHOWN_CHARS])}


def replace_surrogates(text: str) -> str:
    """The text in a form that a message can carry: half a surrogate pair becomes a question
    mark."""
    return text.encode(errors="replace").decode()
