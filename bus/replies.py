"""How a reply reports that its request failed.

A leading mark distinguishes an error from an answer, not the content: a tool may well answer with
an object that has a key `error`. Answers are JSON, and JSON text never starts with the mark.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from loopline.bus.errors import RequestError

_MARK = b"!"


class Reply(NamedTuple):
    """An answer to a request."""

    body: bytes
    record: object = None
    """The record that the answer was serialized from, if that was in this process."""


def error_reply(kind: str, message: str, *, retryable: bool) -> bytes:
    """The reply that reports a failed request; the caller gets it as `RequestError`. Characters of
    the message that UTF-8 can't encode become question marks, since it goes into records."""
    safe_message = message.encode(errors="replace").decode()
    error = {"kind": kind, "message": safe_message, "retryable": retryable}
    return _MARK + json.dumps(error).encode()


def answer_of(reply: bytes) -> bytes:
    """The reply, if it is an answer. Raises the `RequestError` that it contains otherwise."""
    if not reply.startswith(_MARK):
        return reply
    error = json.loads(reply.removeprefix(_MARK))
    raise RequestError(error["kind"], error["message"], retryable=error["retryable"])
