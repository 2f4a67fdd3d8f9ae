"""Requests to `/v1/completions` of a vLLM server, and its answers, validated.

    {"choices": [{"index", "token_ids", "prompt_token_ids", "finish_reason",
                  "logprobs": {"token_logprobs", "top_logprobs": [{"token_id:7": -0.1}, …]}}],
     "model", "usage": {"prompt_tokens", "prompt_tokens_details": {"cached_tokens"}}}

A stream sends the same in pieces, with `prompt_token_ids` in the first and `usage` in the last.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import orjson
from pydantic import BaseModel, ConfigDict, ValidationError

from loopline.agents.records import JsonObject
from loopline.workers.engines.protocol import EngineError, GenerateRequest

HIGHEST_TEMPERATURE = 2.0
"""Highest temperature that vLLM accepts."""
_LOWEST = -9000.0
"""Lowest log-probability of a possible token; an impossible one has -9999."""


class _Logprobs(BaseModel):
    model_config = ConfigDict(extra="ignore")

    token_logprobs: list[float | None] = []
    top_logprobs: list[dict[str, float] | None] | None = None


class _Choice(BaseModel):
    model_config = ConfigDict(extra="ignore")

    index: int
    token_ids: list[int] | None = None
    prompt_token_ids: list[int] | None = None
    finish_reason: str | None = None
    logprobs: _Logprobs | None = None
    prompt_logprobs: list[dict[int, dict[str, Any]] | None] | None = None


class _Details(BaseModel):
    model_config = ConfigDict(extra="ignore")

    cached_tokens: int | None = None


class _Usage(BaseModel):
    model_config = ConfigDict(extra="ignore")

    prompt_tokens: int = 0
    prompt_tokens_details: _Details | None = None


class _Answer(BaseModel):
    model_config = ConfigDict(extra="ignore")

    model: str | None = None
    choices: list[_Choice] = []
    usage: _Usage | None = None
    error: Any = None


@dataclass(frozen=True)
class Piece:
    """New tokens of one completion."""

    index: int
    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    likeliest: tuple[tuple[tuple[int, float], ...], ...]
    """Most likely tokens at the position of each token, most likely first."""
    finish: Literal["stop", "length"] | None


@dataclass(frozen=True)
class Part:
    """One event of a stream, or a whole answer."""

    model: str | None
    pieces: tuple[Piece, ...]
    prompt_ids: tuple[int, ...] | None
    cached: int | None
    """Tokens of the prompt that the server had in memory, if it reports them."""


def completion_body(
    request: GenerateRequest,
    model: str,
    prompt: Sequence[int],
    *,
    limit: int,
    seed: int,
    structured: JsonObject | None,
) -> JsonObject:
    """Raises EngineError `bad_request` for a temperature that vLLM does not accept."""
    sampling = request.sampling
    if sampling.temperature > HIGHEST_TEMPERATURE:
        raise EngineError(
            f"request {request.id} has temperature = {sampling.temperature:g}, but a vLLM server "
            f"accepts at most {HIGHEST_TEMPERATURE:g}",
            kind="bad_request",
        )
    body: JsonObject = {
        "model": model,
        "prompt": list(prompt),
        "max_tokens": limit,
        "n": sampling.n,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "seed": seed,
        "logprobs": request.top_logprobs,
        "return_token_ids": True,
        "return_tokens_as_token_ids": True,
        "skip_special_tokens": False,
        "spaces_between_special_tokens": False,
        "stream": request.stream,
    }
    if sampling.stop:
        body["stop"] = list(sampling.stop)
    if sampling.penalizes:
        body["frequency_penalty"] = sampling.frequency_penalty
        body["presence_penalty"] = sampling.presence_penalty
    if structured is not None:
        body["structured_outputs"] = structured
    if request.stream:
        body["stream_options"] = {"include_usage": True}
    return body


def score_body(model: str, ids: Sequence[int]) -> JsonObject:
    """Body of a request for the log-probability of each of `ids[1:]`."""
    return {
        "model": model, "prompt": list(ids), "max_tokens": 1, "temperature": 0.0,
        "prompt_logprobs": 0, "return_tokens_as_token_ids": True,
    }  # fmt: skip


def read_part(raw: bytes | str, server: str) -> Part:
    """Raises EngineError: `garbage` (retryable) for anything that is not an answer of a vLLM
    server, `unavailable` (retryable) for a completion that the server aborted."""
    answer = _read(raw, server)
    prompt_ids = next((c.prompt_token_ids for c in answer.choices if c.prompt_token_ids), None)
    details = None if answer.usage is None else answer.usage.prompt_tokens_details
    return Part(
        model=answer.model,
        pieces=tuple(_piece(choice, server) for choice in answer.choices),
        prompt_ids=None if prompt_ids is None else tuple(prompt_ids),
        cached=None if details is None else details.cached_tokens,
    )


def read_scores(raw: bytes, ids: Sequence[int], server: str) -> list[float]:
    """Log-probabilities of `ids[1:]`. Raises the errors of `read_part`."""
    answer = _read(raw, server)
    places = answer.choices[0].prompt_logprobs if answer.choices else None
    if places is None or len(places) != len(ids):
        raise garbage_error(server, "prompt_logprobs of other tokens than requested")
    scores: list[float] = []
    for token, place in zip(ids[1:], places[1:], strict=True):
        value = (place or {}).get(token, {}).get("logprob")
        if not isinstance(value, int | float) or not math.isfinite(value):
            raise garbage_error(server, f"no log-probability for the token {token}")
        scores.append(float(value))
    return scores


def garbage_error(server: str, what: str, kind: str = "vLLM") -> EngineError:
    """The error for an answer that a server of this kind would not send."""
    return EngineError(
        f"{server} sent {what}; is it a {kind} server of this model?",
        kind="garbage",
        retryable=True,
    )


def _read(raw: bytes | str, server: str) -> _Answer:
    try:
        answer = _Answer.model_validate(orjson.loads(raw))
    except (orjson.JSONDecodeError, ValidationError) as error:
        first = " ".join(str(error).split())[:200]
        raise garbage_error(server, f"something that is not a completion ({first})") from error
    if answer.error is not None:
        raise EngineError(
            f"{server} sent an error: {str(answer.error)[:400]}", kind="unavailable", retryable=True
        )
    return answer


def _piece(choice: _Choice, server: str) -> Piece:
    ids = tuple(choice.token_ids or ())
    choice_logprobs = choice.logprobs
    logprobs = tuple(
        v for v in (choice_logprobs.token_logprobs if choice_logprobs else ()) if v is not None
    )
    if len(logprobs) != len(ids):
        raise garbage_error(
            server, f"{len(ids)} token ids (return_token_ids) but {len(logprobs)} log-probabilities"
        )
    if not all(math.isfinite(value) for value in logprobs):
        raise garbage_error(server, "a log-probability that is not a number")
    match choice.finish_reason:
        case None | "stop" | "length":
            finish: Literal["stop", "length"] | None = choice.finish_reason
        case reason:
            raise EngineError(
                f"{server} aborted the completion ({reason[:80]!r})",
                kind="unavailable",
                retryable=True,
            )
    tops = (
        choice_logprobs.top_logprobs
        if choice_logprobs is not None and choice_logprobs.top_logprobs
        else [None] * len(ids)
    )
    return Piece(
        choice.index, ids, logprobs, tuple(_likeliest(top, server) for top in tops), finish
    )


def _likeliest(place: dict[str, float] | None, server: str) -> tuple[tuple[int, float], ...]:
    pairs: list[tuple[int, float]] = []
    for name, logprob in (place or {}).items():
        number = name.removeprefix("token_id:")
        if not number.isdecimal():
            raise garbage_error(server, f"the token {name[:80]!r} (return_tokens_as_token_ids)")
        if logprob > _LOWEST:
            pairs.append((int(number), logprob))
    return tuple(sorted(pairs, key=lambda pair: -pair[1]))
