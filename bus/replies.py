"""How a reply says that its request failed.

A mark in front tells an error from an answer, not the answer's content: a tool may well answer with
an object that has a key `error`. Answers are JSON, and no JSON text begins with the mark.
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
    """The record that it was written from, where that was in this process."""


def error_reply(kind: str, message: str, *, retryable: bool) -> bytes:
    """The reply that says that a request failed; the caller gets it as `RequestError`. Characters
    of the message that UTF-8 can't hold become question marks, since it goes into records."""
    safe_message = message.encode(errors="replace").decode()
    error = {"kind": kind, "message": safe_message, "retryable": retryable}
    return _MARK + json.dumps(error).encode()


def answer_of(reply: bytes) -> bytes:
    """The reply, if it is an answer. Raises the `RequestError` that it says otherwise."""
    if not reply.startswith(_MARK):
        return reply
    error = json.loads(reply.removeprefix(_MARK))
    raise RequestError(error["kind"], error["message"], retryable=error["retryable"])
