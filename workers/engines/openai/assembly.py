"""Puts the completions of one request together, from a whole response or from chunks."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from pydantic import ValidationError

from agents.records import Usage
from workers.engines.openai.wire import (
    WireChoice,
    WireMessage,
    WireResponse,
    WireToolCall,
    WireUsage,
    keeps_logprobs,
    read_finish,
    read_tool_calls,
    read_usage,
)
from workers.engines.protocol import Completion, Delta, EngineError, GenerateRequest
from workers.engines.settings import ModelSettings


@dataclass
class _Choice:
    text: list[str] = field(default_factory=list[str])
    calls: dict[int, WireToolCall] = field(default_factory=dict[int, WireToolCall])
    place: int = 0
    """Of the call that the last piece belongs to."""
    finish: str | None = None
    logprobs: list[float] = field(default_factory=list[float])
    token_ids: list[int] = field(default_factory=list[int])


class Assembly:
    """One attempt at one request: feed what arrives, then take the completions."""

    def __init__(self, request: GenerateRequest, settings: ModelSettings, endpoint: str) -> None:
        self._request = request
        self._settings = settings
        self._endpoint = endpoint
        self._choices = [_Choice() for _ in range(request.sampling.n)]
        self._usage: WireUsage | None = None
        self._prompt_ids: list[int] = []
        self._started = time.perf_counter()
        self._first_token: float | None = None

    def parse(self, raw: bytes | str) -> WireResponse:
        """Raises EngineError of kind `garbage` (retryable) for anything but the known shape."""
        try:
            return WireResponse.model_validate_json(raw)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            place = ".".join(map(str, first["loc"])) or "the body"
            raise EngineError(
                f"{self._endpoint} answered something that is no chat completion "
                f"({place}: {first['msg']})",
                kind="garbage",
                retryable=True,
            ) from error

    def add(self, part: WireResponse, *, streamed: bool) -> list[Delta]:
        """Take a response or a chunk; returns the new text."""
        if part.usage is not None:
            self._usage = part.usage
        if part.prompt_token_ids:
            self._prompt_ids = part.prompt_token_ids
        deltas: list[Delta] = []
        for choice in part.choices:
            message = choice.delta if streamed else choice.message
            text, ids = self._add_choice(choice, message, streamed=streamed)
            if streamed and self._first_token is None and (text or message.tool_calls):
                self._first_token = time.perf_counter() - self._started
            if text or ids:
                deltas.append(Delta(index=choice.index, text=text, ids=tuple(ids)))
        return deltas

    def completions(self) -> list[Completion]:
        """All of them, in order of index.

        The provider counts completion tokens over all n choices. Where ids or logprobs say how
        many each has, they are split so; else index 0 carries the sum. Raises EngineError:
        `unavailable` if the answer ended early, `garbage` if it lacks what was asked for.
        """
        for index, choice in enumerate(self._choices):
            if choice.finish is None:
                raise EngineError(
                    f"{self._endpoint}: the answer ended before completion {index} was finished",
                    kind="unavailable",
                    retryable=True,
                )
        if self._usage is None:
            raise EngineError(
                f"{self._endpoint} reported no token usage; nothing is estimated here, so the "
                "answer cannot be used. Streaming needs support of stream_options.include_usage",
                kind="garbage",
            )
        usage = read_usage(self._usage, self._endpoint)
        counts = self._counts(usage.completion)
        elapsed = time.perf_counter() - self._started
        first_token = self._first_token or 0.0
        result: list[Completion] = []
        for index, choice in enumerate(self._choices):
            self._check_extras(index, choice)
            calls = read_tool_calls(
                [choice.calls[position] for position in sorted(choice.calls)],
                f"{self._request.id}/{index}",
            )
            share = usage.model_copy(
                update={
                    "prompt": usage.prompt if index == 0 else 0,
                    "cached": usage.cached if index == 0 else 0,
                    "reasoning": usage.reasoning if index == 0 else 0,
                    "completion": counts[index],
                }
            )
            raw = self._settings.logprobs == "raw"
            result.append(
                Completion(
                    index=index,
                    text="".join(choice.text),
                    tool_calls=calls,
                    prompt_ids=tuple(self._prompt_ids),
                    output_ids=tuple(choice.token_ids),
                    logprobs=tuple(choice.logprobs),
                    raw_logprobs=tuple(choice.logprobs) if raw else (),
                    finish_reason=read_finish(choice.finish, bool(calls), self._endpoint),
                    usage=share,
                    first_token_seconds=first_token,
                    decode_seconds=max(0.0, elapsed - first_token),
                )
            )
        return result

    def paid(self) -> Usage | None:
        """What the endpoint says that the answer costs; None where it says nothing of use."""
        if self._usage is None:
            return None
        try:
            return read_usage(self._usage, self._endpoint)
        except EngineError:
            return None

    def _add_choice(
        self, choice: WireChoice, message: WireMessage, *, streamed: bool
    ) -> tuple[str, list[int]]:
        if not 0 <= choice.index < len(self._choices):
            raise EngineError(
                f"{self._endpoint} sent completion {choice.index} of {len(self._choices)}",
                kind="garbage",
            )
        kept = self._choices[choice.index]
        text = message.content or message.refusal or ""
        if text:
            kept.text.append(text)
        pieces = message.tool_calls or ()
        for position, piece in enumerate(pieces):
            if piece.index is not None:
                kept.place = piece.index
            elif streamed and (piece.id or len(pieces) == 1):
                kept.place = self._place_by_id(kept, piece.id)
            else:  # pieces that come together are of calls apart
                kept.place = position
            self._add_call(kept, piece)
        if choice.finish_reason is not None:
            kept.finish = choice.finish_reason
        if choice.logprobs is not None and self._wants_logprobs:
            kept.logprobs.extend(entry.logprob for entry in choice.logprobs.content or ())
        ids = choice.token_ids or [] if self._settings.token_ids else []
        kept.token_ids.extend(ids)
        return text, ids

    def _place_by_id(self, kept: _Choice, call_id: str | None) -> int:
        """Of a streamed piece without an index: a new id begins a call, and a piece without an id
        goes on with the last one."""
        if not call_id:
            return kept.place
        for place, call in kept.calls.items():
            if call.id == call_id:
                return place
        return max(kept.calls, default=-1) + 1

    def _add_call(self, kept: _Choice, piece: WireToolCall) -> None:
        known = kept.calls.get(kept.place)
        if known is None:
            kept.calls[kept.place] = piece
            return
        known.id = known.id or piece.id
        known.function.name = (known.function.name or "") + (piece.function.name or "")
        known.function.arguments = (known.function.arguments or "") + (
            piece.function.arguments or ""
        )

    @property
    def _wants_logprobs(self) -> bool:
        return keeps_logprobs(self._settings, self._request.sampling)

    def _counts(self, total: int) -> list[int]:
        for counts in (
            [len(choice.token_ids) for choice in self._choices],
            [len(choice.logprobs) for choice in self._choices],
        ):
            if sum(counts) == total:
                return counts
        return [total, *[0] * (len(self._choices) - 1)]

    def _check_extras(self, index: int, choice: _Choice) -> None:
        """What the settings promise must be there, or nothing could be trained on."""
        if self._settings.token_ids and not (choice.token_ids and self._prompt_ids):
            raise EngineError(
                f"{self._endpoint} returned no token ids for completion {index}, but its settings "
                "say token_ids = true; turn it off or serve with support of return_token_ids",
                kind="garbage",
            )
        if self._wants_logprobs and not choice.logprobs and choice.text:
            raise EngineError(
                f"{self._endpoint} returned no logprobs for completion {index}, but its settings "
                f"say logprobs = {self._settings.logprobs!r}",
                kind="garbage",
            )
        lengths = len(choice.token_ids), len(choice.logprobs)
        if all(lengths) and lengths[0] != lengths[1]:
            raise EngineError(
                f"{self._endpoint} returned {lengths[0]} token ids but {lengths[1]} logprobs for "
                f"completion {index}",
                kind="garbage",
            )
