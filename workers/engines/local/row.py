"""One completion while it is decoded: its tokens, its text, and when it ends."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from loopline.agents.records import FinishReason, Usage
from loopline.agents.thinking import parted
from loopline.workers.engines.grammar.matcher import Matcher
from loopline.workers.engines.local.adapters import AdapterVersion
from loopline.workers.engines.local.sampling import RowSampling, Sampled
from loopline.workers.engines.protocol import Completion, Delta, GenerateRequest
from loopline.workers.engines.text.chat_prompt import Prompt, TextCodec
from loopline.workers.engines.text.text_stream import TextStream
from loopline.workers.engines.text.tool_markup import calls_of


@dataclass
class Row:
    """Row `index` of a request. `limit` is the most tokens it may have: max_tokens or what the
    context leaves, whichever is less."""

    request: GenerateRequest
    index: int
    prompt: Prompt
    sampling: RowSampling
    limit: int
    end_ids: frozenset[int]
    codec: TextCodec
    started: float
    """Monotonic seconds at the start of its prefill."""
    adapter: AdapterVersion | None = None
    matcher: Matcher | None = None
    """Its place in the grammar of the request's JSON schema, or of its tools."""
    cached: int = 0
    """Tokens of its prompt that were in memory already."""
    output_ids: list[int] = field(default_factory=list[int])
    logprobs: list[float] = field(default_factory=list[float])
    raw_logprobs: list[float] = field(default_factory=list[float])
    finish_reason: FinishReason | None = None
    _first_token: float = 0.0
    _begins: list[int] = field(default_factory=list[int])
    """Where in the text each token begins; those of a cut character at one place."""

    def __post_init__(self) -> None:
        self._stream = TextStream(self.codec, self.request.sampling.stop, self.prompt.ids[-1])

    @property
    def allowed(self) -> bytes | None:
        """What its grammar allows next (see `Matcher.allowed`); None for everything."""
        return None if self.matcher is None else self.matcher.allowed

    def push(self, sampled: Sampled) -> Delta:
        """Take a token; returns the text it releases, often none. The end-of-turn token is
        kept in the ids (it was sampled and must be trainable) but is no text. A row whose
        grammar is complete ends without one: there was nothing left to sample.

        Raises EngineError if the row's grammar cannot go on from there.
        """
        if not self.output_ids:
            self._first_token = time.perf_counter() - self.started
        token, logprob, raw_logprob = sampled
        self.output_ids.append(token)
        self.logprobs.append(logprob)
        self.raw_logprobs.append(raw_logprob)
        text = ""
        if token in self.end_ids:
            self.finish_reason = "stop"
        else:
            self._begins.append(len(self._stream.text))
            text = self._stream.push(token)
            if self.matcher is not None:
                self.matcher.consume(token)
            if self._stream.stopped or (self.matcher is not None and self.matcher.complete):
                self.finish_reason = "stop"
            elif len(self.output_ids) >= self.limit:
                self.finish_reason = "length"
        if self.finish_reason is not None:
            text += self._stream.finish()
        adapter, version = self._drawn_by
        return Delta(
            index=self.index, text=text, ids=(token,), adapter=adapter, adapter_version=version
        )

    def take_logprobs(self, raw: list[float]) -> None:
        """These are the log-probabilities of the output under the model's own distribution."""
        if self.matcher is None and not self.sampling.shapes:
            self.logprobs = raw
        self.raw_logprobs = raw

    def completion(self) -> Completion:
        """The finished row."""
        assert self.finish_reason is not None
        text, opened = self._stream.text, self._begins_in_thought
        calls = calls_of(self.request, self.index, text, opened=opened)
        reason = "tool_calls" if calls and self.finish_reason == "stop" else self.finish_reason
        first = self.index == 0
        adapter, version = self._drawn_by
        return Completion(
            index=self.index,
            text=text,
            tool_calls=calls,
            begins_in_thought=opened,
            prompt_ids=tuple(self.prompt.ids),
            output_ids=tuple(self.output_ids),
            logprobs=tuple(self.logprobs),
            raw_logprobs=tuple(self.raw_logprobs),
            finish_reason=reason,
            grammar_masked=self.matcher is not None,
            usage=Usage(
                prompt=len(self.prompt.ids) if first else 0,
                cached=self.cached if first else 0,
                completion=len(self.output_ids),
                reasoning=self._reasoning_tokens(),
                source="engine",
            ),
            first_token_seconds=self._first_token,
            decode_seconds=max(0.0, time.perf_counter() - self.started - self._first_token),
            extends_previous=self.prompt.extends_previous,
            adapter=adapter,
            adapter_version=version,
        )

    @property
    def _begins_in_thought(self) -> bool:
        # A schema leaves no room for a thought, whatever the template opened.
        return self.prompt.opens_thought and self.request.json_schema is None

    def _reasoning_tokens(self) -> int:
        """Of the output, those whose text begins in a thought, delimiters included."""
        spans = iter(parted(self._stream.text, opened=self._begins_in_thought).spans)
        count, (start, end) = 0, next(spans, (-1, -1))
        for begin in self._begins:
            while 0 <= end <= begin:
                start, end = next(spans, (-1, -1))
            count += start <= begin < end
        return count

    @property
    def _drawn_by(self) -> tuple[str | None, int]:
        """Name and version of its adapter."""
        return (None, 0) if self.adapter is None else (self.adapter.name, self.adapter.version)
