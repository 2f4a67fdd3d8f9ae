"""Assembles the completions of one request, from a whole response or from chunks."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import cast

from loopline.agents.records import Usage
from loopline.workers.engines.openai.answer import (
    ChoicePart,
    JsonDict,
    TopLogprobs,
    Unreadable,
    read_choices,
    read_ids,
)
from loopline.workers.engines.openai.calls import CallAssembly
from loopline.workers.engines.openai.complaints import complaint_of, quote
from loopline.workers.engines.openai.finish import read_finish
from loopline.workers.engines.openai.habits import Habits
from loopline.workers.engines.openai.usage import (
    RawUsage,
    UnreadableUsage,
    merge_usage,
    read_usage,
    usage_in,
)
from loopline.workers.engines.openai.wire import keeps_logprobs
from loopline.workers.engines.protocol import Completion, Delta, EngineError, GenerateRequest
from loopline.workers.engines.settings import ModelSettings
from loopline.workers.engines.text.text_stream import ArrivingText, join_surrogates
from loopline.workers.engines.text.tool_markup import calls_of


@dataclass
class _Choice:
    text: ArrivingText
    calls: CallAssembly
    reasoning: list[str] = field(default_factory=list[str])
    finish: str = ""
    logprobs: list[float] = field(default_factory=list[float])
    tokens: list[str] = field(default_factory=list[str])
    top_logprobs: list[TopLogprobs] = field(default_factory=list[TopLogprobs])
    token_ids: list[int] = field(default_factory=list[int])
    begun: bool = False


class Assembly:
    """One attempt at one request: add the payloads as they arrive, then take the completions."""

    awaited = "a chat completion"
    mark = b'"choices"'
    """Occurs in every answer that must be paid for."""

    def __init__(
        self,
        request: GenerateRequest,
        settings: ModelSettings,
        endpoint: str,
        habits: Habits,
        unknown_finish: Callable[[str], object],
        secrets: Sequence[str] = (),
    ) -> None:
        """`unknown_finish` is called with a finish reason that nobody has defined. `secrets` are
        masked in it: a server may write anything there, including parts of the request."""
        self._secrets = secrets
        self._request = request
        self._settings = settings
        self._endpoint = endpoint
        self._unknown_finish = unknown_finish
        self._wants_logprobs = keeps_logprobs(settings, request.sampling, habits)
        # If the endpoint was not sent `stop`, it is applied here.
        stop = request.sampling.stop if "stop" in habits.left_out else ()
        tools = {tool.name for tool in request.tools}
        self._choices = [
            _Choice(ArrivingText(stop), CallAssembly(tools)) for _ in range(request.sampling.n)
        ]
        self._usage: RawUsage | None = None
        self._prompt_ids: list[int] = []
        self._started = time.perf_counter()
        self._first_token: float | None = None
        self._ended = False
        self.sent = False
        """The request may have been sent."""
        self.answered = False
        """Generated output has arrived, which the endpoint will bill."""
        self._strays: list[str] = []

    def bill(self, payload: object) -> None:
        """Record the cost that a response or a chunk reports, readable or not: it is billed either
        way."""
        if isinstance(payload, dict):
            body = cast(JsonDict, payload)
            if (usage := usage_in(body)) is not None:
                self._usage = merge_usage(self._usage, usage)
            self.answered = self.answered or bool(body.get("choices"))

    def add(self, payload: object, *, streamed: bool) -> list[Delta]:
        """Add a response or a chunk; returns the new text if the request streams. In a stream,
        other payloads (a ping, the server's own events) are skipped.

        Raises EngineError of kind `garbage` for any unknown format.
        """
        if not isinstance(payload, dict):
            if streamed:
                return []
            raise self._malformed_error(f"the body is not an object: {str(payload)[:80]!r}")
        body = cast(JsonDict, payload)
        try:
            parts = read_choices(
                body,
                streamed=streamed,
                logprobs=self._wants_logprobs,
                tokens=self._request.token_texts,
                top_logprobs=self._request.top_logprobs > 0,
            )
            self._prompt_ids = read_ids(body, "prompt_token_ids") or self._prompt_ids
        except Unreadable as error:
            why = str(error)
            if body.get("choices") is None:
                why += f": {complaint_of(body).quoted(self._secrets)}"
            raise self._malformed_error(why) from error
        if not streamed:
            self._ended = True
        deltas: list[Delta] = []
        for part in parts:
            if not streamed and self._request.sampling.n == 1 and part.calls and not part.text:
                part.index = 0  # GitHub Copilot sends Claude's text and its calls as two choices
            text, ids = self._add_choice(part, streamed=streamed)
            if streamed and self._first_token is None and part.has_content:
                self._first_token = time.perf_counter() - self._started
            if self._request.stream and (text or ids):
                deltas.append(Delta(index=part.index, text=text, ids=tuple(ids)))
        return deltas

    def keep_stray(self, text: str) -> None:
        """Keep an event that is neither chunk nor error: if the answer stays incomplete, it may say
        why."""
        if len(self._strays) < 8:
            self._strays.append(text[:400])

    @property
    def strays(self) -> str:
        """What `keep_stray` kept, for display; empty if nothing was."""
        return quote(" ".join(self._strays), self._secrets)

    def end(self) -> None:
        """The stream was read up to its end mark."""
        self._ended = True

    def rest(self) -> list[Delta]:
        """Text that was held back, once no more text can come."""
        texts = [(index, choice.text.finish()) for index, choice in enumerate(self._choices)]
        return [Delta(index=index, text=text) for index, text in texts if text]

    def completions(self, sending: int = 0) -> list[Completion]:
        """Completions of call number `sending`, ordered by index; fewer than requested, but at
        least one, if the endpoint doesn't support `n`.

        The provider counts completion tokens over all choices. They are split among the choices if
        ids or logprobs show how many each has; otherwise index 0 has the sum. Raises EngineError:
        `unavailable` if the answer ended early or with a server failure, `garbage` if requested
        parts are missing.
        """
        self.rest()
        choices = self._finished_choices()
        usage = self._count_usage()
        counts = self._counts(choices, usage.completion)
        elapsed = time.perf_counter() - self._started
        first_token = self._first_token or 0.0
        raw = self._settings.logprobs == "raw"
        result: list[Completion] = []
        for index, choice in enumerate(choices):
            share = (
                usage
                if len(choices) == 1
                else usage.model_copy(
                    update={
                        "prompt": usage.prompt if index == 0 else 0,
                        "cached": usage.cached if index == 0 else 0,
                        "reasoning": usage.reasoning if index == 0 else 0,
                        "completion": counts[index],
                    }
                )
            )
            calls = choice.calls.finished(f"{self._request.id}/{index}")
            if not calls:  # the server has no parser for its model's markup
                calls = calls_of(self._request, index, choice.text.text)
            reasoning = join_surrogates("".join(choice.reasoning))
            if not calls and reasoning and not choice.text.text.strip():
                # The model went on from its thought to the call, and the server took all of it for
                # the thought.
                calls = calls_of(self._request, index, reasoning, opened=True)
            finish = read_finish(
                quote(choice.finish, self._secrets),
                self._endpoint,
                has_calls=bool(calls),
                has_text=bool(choice.text.text),
                unknown=self._unknown_finish,
            )
            self._check_extras(index, choice)
            logprobs = tuple(choice.logprobs)
            result.append(
                Completion(
                    index=index,
                    text=choice.text.text,
                    tool_calls=calls,
                    reasoning=reasoning,
                    prompt_ids=tuple(self._prompt_ids),
                    output_ids=tuple(choice.token_ids),
                    logprobs=logprobs if self._wants_logprobs else (),
                    raw_logprobs=logprobs if self._wants_logprobs and raw else (),
                    tokens=tuple(choice.tokens),
                    reported_logprobs=() if self._wants_logprobs else logprobs,
                    top_logprobs=tuple(choice.top_logprobs) if any(choice.top_logprobs) else (),
                    finish_reason=finish,
                    usage=share,
                    first_token_seconds=first_token,
                    decode_seconds=max(0.0, elapsed - first_token),
                    sending=sending,
                )
            )
        return result

    @property
    def counted(self) -> bool:
        """Whether the endpoint has reported any usage."""
        return self._usage is not None

    @property
    def ended(self) -> bool:
        """Whether the answer is complete."""
        return self._ended

    def paid(self) -> Usage | None:
        """Cost of the answer as the endpoint reports it; None without a usable report."""
        if self._usage is None:
            return None
        try:
            return read_usage(self._usage)
        except UnreadableUsage:
            return None

    def _add_choice(self, part: ChoicePart, *, streamed: bool) -> tuple[str, list[int]]:
        if not 0 <= part.index < len(self._choices):
            raise self._malformed_error(f"it has completion {part.index} of {len(self._choices)}")
        choice = self._choices[part.index]
        if part.is_message and part.finish and part.text.strip() == choice.text.text.strip():
            # MiniMax ends a stream with the whole message.
            part.text = ""
            part.reasoning = "" if choice.reasoning else part.reasoning
            part.calls = [] if choice.calls else part.calls
        choice.begun = choice.begun or part.has_content
        text = choice.text.push(part.text)
        if part.reasoning:
            choice.reasoning.append(part.reasoning)
        choice.calls.add(part.calls, streamed=streamed)
        choice.finish = part.finish or choice.finish
        choice.logprobs.extend(part.logprobs)
        choice.tokens.extend(map(join_surrogates, part.tokens))
        choice.top_logprobs.extend(
            tuple((join_surrogates(text), logprob) for text, logprob in pairs)
            for pairs in part.top_logprobs
        )
        ids = part.token_ids if self._settings.token_ids else []
        choice.token_ids.extend(ids)
        return text, ids

    def _finished_choices(self) -> list[_Choice]:
        """Return the choices that the endpoint sent. A complete answer needs no finish reason (some
        servers send none); one that may have been cut off needs one."""
        whole = self._ended and self._usage is not None
        ready_choices: list[_Choice] = []
        for index, choice in enumerate(self._choices):
            if not (choice.finish or (choice.begun and whole)):
                if index > 0 and whole and not any(c.begun for c in self._choices[index:]):
                    break
                also = f"; it also sent: {self.strays}" if self._strays else ""
                raise EngineError(
                    f"{self._endpoint}: the answer ended before completion {index} was finished"
                    + also,
                    kind="unavailable",
                    retryable=True,
                )
            ready_choices.append(choice)
        return ready_choices

    def _count_usage(self) -> Usage:
        try:
            usage = None if self._usage is None else read_usage(self._usage)
        except UnreadableUsage as error:
            usage_text = json.dumps(self._usage)[:200]
            raise EngineError(
                f"{self._endpoint} reported a usage that cannot be read ({error}): {usage_text}; "
                "usage is never estimated, so the answer cannot be used",
                kind="garbage",
            ) from error
        if usage is None:
            raise EngineError(
                f"{self._endpoint} reported no token usage, which is never estimated, so the "
                "answer cannot be used. Streaming requires stream_options.include_usage",
                kind="garbage",
            )
        return usage

    def _counts(self, choices: list[_Choice], total: int) -> list[int]:
        for counts in (
            [len(choice.token_ids) for choice in choices],
            [len(choice.logprobs) for choice in choices],
        ):
            if sum(counts) == total:
                return counts
        return [total, *[0] * (len(choices) - 1)]

    def _check_extras(self, index: int, choice: _Choice) -> None:
        """Check for the data that the settings promise: without it, the call could not be trained
        on."""
        if self._settings.token_ids and not (choice.token_ids and self._prompt_ids):
            raise EngineError(
                f"{self._endpoint} returned no token ids for completion {index}, but its settings "
                "say token_ids = true; turn it off, or use a server with return_token_ids",
                kind="garbage",
            )
        if self._wants_logprobs and not choice.logprobs and choice.text.text:
            raise EngineError(
                f"{self._endpoint} returned no logprobs for completion {index}, but its settings "
                f"say logprobs = {self._settings.logprobs!r}",
                kind="garbage",
            )
        lengths = len(choice.token_ids), len(choice.logprobs)
        if self._wants_logprobs and all(lengths) and lengths[0] != lengths[1]:
            raise EngineError(
                f"{self._endpoint} returned {lengths[0]} token ids but {lengths[1]} logprobs for "
                f"completion {index}",
                kind="garbage",
            )

    def _malformed_error(self, why: str) -> EngineError:
        return EngineError(
            f"{self._endpoint} answered something that is not {self.awaited} "
            f"({join_surrogates(why)})",
            kind="garbage",
            retryable=True,
        )
