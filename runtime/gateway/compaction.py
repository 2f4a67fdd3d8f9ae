"""`POST /v1/responses/compact` shortens a long conversation, as in OpenAI's API: the user's
messages stay, and one item replaces everything else.

The requested model writes a summary. The item contains its text, so that any gateway can read it
and no state has to be kept. The text is encoded, not encrypted, since it contains nothing that its
caller has not sent or received. In a request, the item becomes an assistant message at its place.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field

from loopline.agents.records import Message
from loopline.runtime.gateway.content_parts import input_parts
from loopline.runtime.gateway.errors import invalid
from loopline.runtime.gateway.responses_request import Input, Label
from loopline.runtime.gateway.wire_model import WireModel

REQUEST = (
    "Summarise our conversation so far, so that it can be continued from the summary alone. Keep "
    "what was asked, what was decided, what tools answered (names, numbers, identifiers) and what "
    "is still to be done. Write the summary and nothing else."
)
_HEAD = "Summary of the conversation so far:\n"
_MARK = "loopline-summary-1."


class CompactRequest(WireModel):
    """Body of a request. An unknown field is refused by name."""

    model: str = Field(min_length=1, max_length=256)
    input: Input | None = None
    instructions: str | None = None
    previous_response_id: Annotated[str, Field(max_length=256)] | None = None
    # As in `ResponseRequest`: no answer depends on these fields.
    prompt_cache_key: Label | None = None
    prompt_cache_retention: Label | None = None
    service_tier: Label | None = None


def summary_request(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return the conversation with a request for its summary. Raises `ApiError` if it is empty."""
    if not any(message.role != "system" for message in messages):
        raise invalid("there is no conversation to compact: give 'input' or 'previous_response_id'")
    return (*messages, Message(role="user", content=REQUEST))


def compacted(
    run_id: str, created: int, messages: Sequence[Message], summary: str, usage: Any
) -> dict[str, Any]:
    """Return the answer's body; its `output` is the input that continues the conversation."""
    user_messages = [message for message in messages if message.role == "user"]
    output: list[dict[str, Any]] = [
        {
            "id": f"in_{run_id}_{number}",
            "type": "message",
            "role": "user",
            "status": "completed",
            "content": input_parts(message),
        }
        for number, message in enumerate(user_messages)
    ]
    encoded = _MARK + base64.urlsafe_b64encode(summary.encode()).decode()
    output.append({"id": f"cmp_{run_id}", "type": "compaction", "encrypted_content": encoded})
    return {
        "id": f"cmp_{run_id}",
        "object": "response.compaction",
        "created_at": created,
        "output": output,
        "usage": usage,
    }


def summary_text(encoded: str, where: str) -> str:
    """Return the text that the model reads for an item. Raises `ApiError` for another server's
    item."""
    try:
        if not encoded.startswith(_MARK):
            raise ValueError(encoded)
        text = base64.b64decode(encoded.removeprefix(_MARK), b"-_", validate=True).decode()
    except (ValueError, binascii.Error) as error:
        raise invalid(
            "the compaction was not made by this API: only its server can read it. Send the "
            "conversation itself, or compact it by POST /v1/responses/compact",
            f"{where}.encrypted_content",
            "invalid_value",
        ) from error
    return f"{_HEAD}{text}"
