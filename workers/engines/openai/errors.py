"""From the failures of an endpoint to typed engine errors, without secrets in their text."""

from __future__ import annotations

import re

import openai

from workers.engines.protocol import EngineError

MAX_QUOTED_CHARS = 400
"""Of what an endpoint says, this much is repeated: enough for a sentence, not for a web page."""

_OVERFLOW = re.compile(r"maximum context length|context_length_exceeded|available context size")


def engine_error(error: openai.OpenAIError, endpoint: str, key: str) -> EngineError:
    """The typed error for whatever the `openai` package raised.

    Retryable: time-outs, refused or broken connections, 408, 409, 429 (unless the quota is used
    up) and 5xx. Not retryable: everything that the same request will meet again.
    """
    said = quote(error, key)
    match error:
        case openai.APITimeoutError():
            return EngineError(f"{endpoint}: timed out: {said}", kind="timeout", retryable=True)
        case openai.APIConnectionError():
            cause = quote(error.__cause__ or error, key)
            return EngineError(
                f"{endpoint}: no connection ({cause}); is the address right and the server up?",
                kind="unavailable",
                retryable=True,
            )
        case openai.APIResponseValidationError():
            return EngineError(f"{endpoint}: {said}", kind="garbage", retryable=True)
        case openai.APIStatusError():
            return _status_error(error, endpoint, said)
        case openai.APIError():
            return EngineError(f"{endpoint}: {said}", kind="unavailable", retryable=True)
        case _:
            return EngineError(f"{endpoint}: {said}", kind="internal")


def quote(error: BaseException, key: str) -> str:
    """What an error says, shortened, with the key masked: some endpoints repeat it."""
    text = " ".join(str(error).split()) or type(error).__name__
    if key:
        text = text.replace(key, "***")
    return text if len(text) <= MAX_QUOTED_CHARS else text[:MAX_QUOTED_CHARS] + "…"


def _status_error(error: openai.APIStatusError, endpoint: str, said: str) -> EngineError:
    status = error.status_code
    place = f"{endpoint} answered {status}"
    if status == 429:
        if error.code == "insufficient_quota":
            return EngineError(
                f"{place}: the account's quota is used up: {said}", kind="rate_limited"
            )
        return EngineError(f"{place}: {said}", kind="rate_limited", retryable=True)
    if status in (401, 403):
        return EngineError(f"{place}: the key was refused: {said}", kind="auth")
    if status == 404:
        return EngineError(
            f"{place}: {said}; check the model's name and the base_url", kind="bad_request"
        )
    if status in (408, 409) or status >= 500:
        return EngineError(f"{place}: {said}", kind="unavailable", retryable=True)
    if error.code == "context_length_exceeded" or _OVERFLOW.search(str(error)):
        return EngineError(f"{place}: {said}", kind="context_overflow")
    if error.code in ("content_filter", "content_policy_violation"):
        return EngineError(f"{place}: {said}", kind="content_filter")
    return EngineError(f"{place}: {said}", kind="bad_request")
