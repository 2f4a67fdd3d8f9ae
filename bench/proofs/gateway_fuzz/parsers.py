"""`python -m loopline.bench.proofs.gateway_fuzz.parsers -runs=1000000`: atheris searches for input
that breaks the parsers of the gateway's requests. Options are libFuzzer's; it stops at the first
input that breaks a parser. Needs `pip install '.[fuzz]'`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import atheris  # pyright: ignore
import orjson
from pydantic import BaseModel

with atheris.instrument_imports(include=["loopline.agents", "loopline.runtime.gateway"]):  # pyright: ignore
    from loopline.agents.records import Message
    from loopline.agents.tools.json_arguments import MAX_DEPTH, is_deeper_than, parse_arguments
    from loopline.bus import is_entry_id
    from loopline.runtime.gateway.chat_request import ChatRequest
    from loopline.runtime.gateway.chat_stream import place_of
    from loopline.runtime.gateway.errors import ApiError, validated
    from loopline.runtime.gateway.idempotency import digest_of
    from loopline.runtime.gateway.responses_items import check_calls, items_of, messages_of
    from loopline.runtime.gateway.responses_request import ResponseRequest
    from loopline.runtime.gateway.runs_request import CreateRun, Feedback, ForkRun
    from loopline.runtime.gateway.sessions import session_of


def _chat(body: Any) -> None:
    request = validated(ChatRequest, body, strict=True)
    _written(request.conversation, request.options)


def _response(body: Any) -> None:
    request = validated(ResponseRequest, body)
    messages = messages_of(items_of(request.input))
    check_calls(messages)
    _written(messages, request.options, request.record)


def _run(body: Any) -> None:
    _written(validated(CreateRun, body).conversation)


def _written(messages: tuple[Message, ...], *others: BaseModel) -> None:
    """Check that the parsed records can be written as JSON that the next process can read."""
    for record in (*messages, *others):
        type(record).model_validate_json(record.model_dump_json(by_alias=True))


BODIES: tuple[Callable[[Any], object], ...] = (
    _chat, _response, _run,
    lambda body: validated(ForkRun, body), lambda body: validated(Feedback, body),
    lambda body: digest_of("runs", body),
)  # fmt: skip
TEXTS: tuple[Callable[[str], object], ...] = (
    is_entry_id,
    parse_arguments,
    lambda text: session_of(text, None, "caller"),
    lambda text: place_of(text),
)


def one_input(data: bytes) -> None:
    """Run the parsers. Raises for an input that breaks one: a parser may raise only its documented
    errors."""
    kind, data = data[:1], data[1:]
    number = kind[0] % (len(BODIES) + len(TEXTS)) if kind else 0
    with suppress(ApiError):
        if number >= len(BODIES):
            with suppress(ValueError):  # an invalid event id
                TEXTS[number - len(BODIES)](data.decode("latin-1"))
            return
        try:
            body = orjson.loads(data)
        except orjson.JSONDecodeError:
            return
        if isinstance(body, dict) and not is_deeper_than(body, MAX_DEPTH):
            BODIES[number](body)


if __name__ == "__main__":
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()
