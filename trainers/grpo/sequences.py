"""A candidate's completions as token sequences: what the policy wrote, what it only read, and the
log-probability of each written token at sampling time.

Text is never tokenized again. If a completion's prompt starts with the ids of the previous
sequence, the conversation continues in that sequence; otherwise (for example, if a template drops
earlier reasoning) a new one starts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from loopline.trainers.data.json_files import Unreadable
from loopline.trainers.data.samples import AnyCall
from loopline.workers.engines.text.chat_prompt import TextCodec

NO_CALL = "candidate without a completion"
NOT_TRAINABLE = "completion without token ids or log-probabilities"
NOT_FITTING = "log-probabilities that do not fit the tokens"
NOT_ENDED = "completion that was broken off"
GREEDY = "completion that was not sampled (temperature 0)"
FILTERED = "completion sampled with top_p, top_k, a penalty or a grammar"
OTHER_TOKENIZER = "token ids of another tokenizer"
TOO_LONG = "sequence longer than the model's context"

Belongs = Callable[[AnyCall], bool]
"""Whether a completion's ids come from the tokenizer of the model that is trained."""


@dataclass(frozen=True)
class TokenSequence:
    """One row to learn from; `learned` and `logprobs` have as many entries as `ids`."""

    ids: tuple[int, ...]
    learned: tuple[bool, ...]
    """Whether the policy sampled the id. Prompts and observations are not learned."""
    logprobs: tuple[float, ...]
    """Natural log-probabilities as sampled; 0 for ids that were not sampled."""
    temperature: float
    """Temperature at which all of it was sampled."""
    truncated: bool
    """Whether any of its completions reached its token limit."""

    @property
    def count(self) -> int:
        """Number of learned tokens."""
        return sum(self.learned)


def sequences_of(
    calls: Sequence[AnyCall], belongs: Belongs, max_context: int
) -> tuple[TokenSequence, ...]:
    """The sequences of one candidate's calls, in the order in which they were made.

    Raises `Unreadable` with one of the reasons above for a completion that can't be learned from:
    importance ratios need the log-probability of every token under the whole softmax of the model's
    logits. With top_p = 0.8 their mean is 0.896 with unchanged weights (huggingface/trl#7269); with
    a frequency penalty each token has a ratio of its own.
    """
    if not calls:
        raise Unreadable(NO_CALL)
    sequences: list[TokenSequence] = []
    for call in calls:
        require_learnable(call, belongs)
        written = len(call.output_ids)
        before = sequences[-1] if sequences and _is_continued_by(sequences[-1], call) else None
        begun = 0 if before is None else len(before.ids)
        read = len(call.prompt_ids) - begun
        sequence = TokenSequence(
            ids=(*call.prompt_ids, *call.output_ids),
            learned=(*(before.learned if before else ()), *[False] * read, *[True] * written),
            logprobs=(*(before.logprobs if before else ()), *[0.0] * read, *call.logprobs),
            temperature=call.sampling.temperature,
            truncated=call.finish_reason == "length" or (before is not None and before.truncated),
        )
        if len(sequence.ids) > max_context:
            raise Unreadable(TOO_LONG, f"{len(sequence.ids):,} tokens of {max_context:,}")
        if before is not None:
            sequences.pop()
        sequences.append(sequence)
    return tuple(sequences)


def same_tokenizer(codec: TextCodec, vocabulary: int, end_ids: frozenset[int]) -> Belongs:
    """A check by a fingerprint that every record carries: the ids, decoded by `codec`, must yield
    the recorded text. A stop string ends the text early; the token that ends a turn is not text."""

    def belongs(call: AnyCall) -> bool:
        if any(not 0 <= token_id < vocabulary for token_id in (*call.prompt_ids, *call.output_ids)):
            return False
        written = list(call.output_ids)
        if written and written[-1] in end_ids:
            written.pop()
        after = call.prompt_ids[-1] if call.prompt_ids else None
        text = codec.decode(written, after)
        # Without a stop string the text is complete, except for half a character at its end.
        return text.startswith(call.text) and (bool(call.sampling.stop) or text == call.text)

    return belongs


def _is_continued_by(before: TokenSequence, call: AnyCall) -> bool:
    """Whether a call's prompt starts with the whole sequence, at the same temperature."""
    same = call.sampling.temperature == before.temperature
    return same and call.prompt_ids[: len(before.ids)] == before.ids


def require_learnable(call: AnyCall, belongs: Belongs) -> None:
    """Raise `Unreadable` for a completion that can't be learned from, as `sequences_of` does."""
    sampling = call.sampling
    require_written(call)
    if len(call.logprobs) != len(call.output_ids) or not all(
        math.isfinite(logprob) and logprob <= 1e-6 for logprob in call.logprobs
    ):
        raise Unreadable(NOT_FITTING, call.id)
    if sampling.temperature == 0.0:
        raise Unreadable(GREEDY, call.id)
    cut = sampling.top_p < 1.0 or sampling.top_k > 0
    if cut or sampling.penalizes or call.grammar_masked:
        raise Unreadable(FILTERED, call.id)
    if not belongs(call):
        raise Unreadable(OTHER_TOKENIZER, f"{call.id} of {call.policy.base}")


def require_written(call: AnyCall) -> None:
    """Raise `Unreadable` for a completion that was broken off, or whose ids are unknown."""
    if call.finish_reason in ("cancelled", "content_filter"):
        raise Unreadable(NOT_ENDED, f"{call.id}: {call.finish_reason}")
    if not call.trainable or not call.prompt_ids or not call.output_ids:
        raise Unreadable(NOT_TRAINABLE, f"{call.id} of {call.policy.base}")
