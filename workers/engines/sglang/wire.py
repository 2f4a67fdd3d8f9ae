"""Requests to `/generate` of an SGLang server, and its answers, validated.

    {"output_ids": [7, …], "index": 0,
     "meta_info": {"id", "finish_reason": {"type": "stop" | "length" | "abort", …},
                   "prompt_tokens", "completion_tokens", "cached_tokens", "weight_version",
                   "output_token_logprobs": [[-0.1, 7, null], …],
                   "output_top_logprobs": [[[-0.1, 7, null], …], …],
                   "input_token_logprobs": [[null, 1, null], [-2.3, 5, null], …]}}

An answer with several completions is a list of these objects. Each event of a stream repeats the
earlier output, unless the server runs with `--incremental-streaming-output`; an error is an event,
too. `index` is missing if there is only one completion. The log-probabilities are those of the
softmax of logits divided by the temperature, with grammar and penalties, before top_p and top_k;
those of the input are the model's own.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Sequence
from typing import Any, Literal

import orjson
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from loopline.agents.records import JsonObject
from loopline.workers.engines.openai.complaints import complaint_of
from loopline.workers.engines.openai.errors import refusal_of
from loopline.workers.engines.protocol import EngineError, GenerateRequest
from loopline.workers.engines.vllm.wire import Part, Piece, garbage_error

KIND = "SGLang"
_SEEDS = 2**31
"""Seeds have 31 bits: kernels differ in how many more they accept."""
_REFUSED = 400

_Scored = tuple[float | None, int, Any]
"""Log-probability, token, text."""


class _Meta(BaseModel):
    model_config = ConfigDict(extra="ignore")

    finish_reason: dict[str, Any] | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int | None = None
    weight_version: str | None = None
    output_token_logprobs: list[_Scored] | None = None
    output_token_logprobs_length: int | None = None
    """Number of tokens over all events so far, if the server reports it."""
    output_top_logprobs: list[list[_Scored] | None] | None = None
    input_token_logprobs: list[_Scored] | None = None


class _Output(BaseModel):
    model_config = ConfigDict(extra="ignore")

    index: int = 0
    meta_info: _Meta = _Meta()
    error: Any = None


_OUTPUTS = TypeAdapter(list[_Output])


def generate_body(
    request: GenerateRequest,
    prompt: Sequence[int],
    *,
    request_id: str,
    adapter: str | None,
    limit: int,
    seed: int,
    structured: JsonObject | None,
    end_ids: Collection[int],
) -> JsonObject:
    """The body for one prompt, repeated for each completion: every completion gets its own seed,
    which SGLang would not do by itself."""
    sampling = request.sampling
    params: dict[str, Any] = {
        "max_new_tokens": limit,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k or -1,
        "frequency_penalty": sampling.frequency_penalty,
        "presence_penalty": sampling.presence_penalty,
        "stop_token_ids": sorted(end_ids),
        "skip_special_tokens": False,
        "spaces_between_special_tokens": False,
        "no_stop_trim": True,
    }
    if sampling.stop:
        params["stop"] = list(sampling.stop)
    if structured is not None:
        params |= _grammar(structured)
    several = [params | {"sampling_seed": (seed + at) % _SEEDS} for at in range(sampling.n)]
    alone = sampling.n == 1
    body: dict[str, Any] = {
        "input_ids": list(prompt) if alone else [list(prompt)] * sampling.n,
        "sampling_params": several[0] if alone else several,
        "rid": request_id if alone else rids(request_id, sampling.n),
        "return_logprob": True,
        "logprob_start_len": -1,
        "top_logprobs_num": request.top_logprobs,
        "stream": request.stream,
    }
    if adapter is not None:
        body["lora_path"] = adapter if alone else [adapter] * sampling.n
    return body


def rids(request_id: str, count: int) -> list[str]:
    """The server's ids of a request's completions."""
    return [request_id] if count == 1 else [f"{request_id}-{at}" for at in range(count)]


def _grammar(structured: JsonObject) -> JsonObject:
    """See `loopline.workers.engines.vllm.constraint`; llguidance accepts Lark as `ebnf`."""
    if "json" in structured:
        return {"json_schema": json.dumps(structured["json"])}
    return {"ebnf": structured["grammar"]}


def score_body(ids: Sequence[int], request_id: str, adapter: str | None) -> JsonObject:
    """Body of a request for the log-probability of each of `ids[1:]`."""
    body: JsonObject = {
        "input_ids": list(ids), "rid": request_id, "return_logprob": True, "logprob_start_len": 0,
        "sampling_params": {"max_new_tokens": 0, "temperature": 1.0},
    }  # fmt: skip
    return body if adapter is None else {**body, "lora_path": adapter}


class AnswerReader:
    """Reads the events of one answer, and returns only the new part of each."""

    def __init__(
        self, server: str, rows: int, *, weights: str | None = None, secrets: Sequence[str] = ()
    ) -> None:
        """`weights`: the version that must answer; None for any."""
        self._server = server
        self._seen = [0] * rows
        self._weights = weights
        self._secrets = secrets

    def __call__(self, raw: bytes | str) -> Part:
        """Raises EngineError: `garbage` (retryable) for an invalid answer, `Refused` for a request
        that the server cannot honour, `unavailable` (retryable) for a completion that it aborted,
        `OtherWeights` for an answer of other weights."""
        outputs = read_outputs(raw, self._server)
        for place, output in enumerate(outputs):
            if len(outputs) > 1 and not output.index:
                output.index = place
            self._raise_error(output)
        cached = [output.meta_info.cached_tokens for output in outputs if output.index == 0]
        return Part(
            model=None,
            pieces=tuple(self._piece(output) for output in outputs),
            prompt_ids=None,
            cached=cached[0] if cached else None,
        )

    def _raise_error(self, output: _Output) -> None:
        reason = output.meta_info.finish_reason or {}
        if output.error is not None:
            raise self._refusal(output.error)
        if reason.get("type") == "abort":
            if reason.get("status_code") == _REFUSED:
                raise self._refusal(reason.get("message", ""))
            raise EngineError(
                f"{self._server} aborted the completion ({str(reason.get('message', ''))[:200]!r})",
                kind="unavailable",
                retryable=True,
            )
        version = output.meta_info.weight_version
        if self._weights is not None and version is not None and version != self._weights:
            raise OtherWeights(
                f"{self._server} answered with the weights {version!r}, not {self._weights!r}"
            )

    def _refusal(self, words: object) -> EngineError:
        return refusal_of(
            complaint_of(words), _REFUSED, self._server, self._secrets, key_sent=False
        )

    def _piece(self, output: _Output) -> Piece:
        meta, server = output.meta_info, self._server
        if not 0 <= output.index < len(self._seen):
            raise garbage_error(server, f"a completion {output.index}", KIND)
        scored = meta.output_token_logprobs
        if scored is None:
            raise garbage_error(server, "no output_token_logprobs (return_logprob)", KIND)
        total = meta.output_token_logprobs_length
        total = max(len(scored), meta.completion_tokens) if total is None else total
        before = self._seen[output.index]
        # Offset of the new tokens: the list starts at the first token or after earlier output.
        start = before - (total - len(scored))
        if not 0 <= start <= len(scored):
            raise garbage_error(server, f"{len(scored)} tokens of {total} after {before}", KIND)
        self._seen[output.index] = total
        new = scored[start:]
        values = [value for value, _, _ in new if value is not None and math.isfinite(value)]
        if len(values) != len(new):
            raise garbage_error(server, "a log-probability that is not a number", KIND)
        tops = meta.output_top_logprobs or [None] * len(scored)
        if len(tops) != len(scored):
            raise garbage_error(server, f"{len(tops)} places of {len(scored)} tokens", KIND)
        return Piece(
            output.index,
            tuple(token for _, token, _ in new),
            tuple(values),
            tuple(_likeliest(top) for top in tops[start:]),
            self._finish(meta.finish_reason),
        )

    def _finish(self, reason: dict[str, Any] | None) -> Literal["stop", "length"] | None:
        match None if reason is None else str(reason.get("type")):
            case None:
                return None
            case "stop":
                return "stop"
            case "length":
                return "length"
            case kind:
                raise garbage_error(self._server, f"the finish_reason {kind[:80]!r}", KIND)


class OtherWeights(EngineError):
    """Other weights than requested have answered: the server was restarted, or another client has
    changed them."""

    kind = "unavailable"
    retryable = True


def read_outputs(raw: bytes | str, server: str) -> list[_Output]:
    """Raises EngineError `garbage` (retryable) for anything that is not an answer of
    `/generate`."""
    try:
        value = orjson.loads(raw)
        return _OUTPUTS.validate_python(value if isinstance(value, list) else [value])
    except (orjson.JSONDecodeError, ValidationError) as error:
        first = " ".join(str(error).split())[:200]
        raise garbage_error(server, f"something that is not an answer ({first})", KIND) from error


def read_scores(raw: bytes, ids: Sequence[int], server: str) -> list[float]:
    """Log-probabilities of `ids[1:]`. Raises EngineError `garbage` (retryable)."""
    outputs = read_outputs(raw, server)
    scored = (outputs[0].meta_info.input_token_logprobs or []) if outputs else []
    if [token for _, token, _ in scored] != list(ids):
        raise garbage_error(server, "input_token_logprobs of other tokens than requested", KIND)
    values = [value for value, _, _ in scored[1:] if value is not None and math.isfinite(value)]
    if len(values) != len(ids) - 1:
        raise garbage_error(server, "a token without a log-probability", KIND)
    return values


def _likeliest(place: Sequence[_Scored] | None) -> tuple[tuple[int, float], ...]:
    pairs = [(token, value) for value, token, _ in place or () if value is not None]
    return tuple(sorted(pairs, key=lambda pair: -pair[1]))
