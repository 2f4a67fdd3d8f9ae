"""Samples tokens with their exact log-probabilities from logits, each row with its own parameters.

The log-probability is that of the distribution the token was drawn from: softmax of the logits
divided by the temperature, truncated to the top k, then to the smallest set with a mass of at least
top_p, renormalised. Tokens as likely as the last one kept are kept too, so that the support does
not depend on their order. Greedy rows draw nothing; by convention they report the softmax of the
raw logits, with which a later sample at temperature 1 would be compared.

Penalties, as OpenAI defines them, are applied first: the logit of a token that occurs c times in
the completion is lowered by c * frequency_penalty, and by presence_penalty if c > 0. With
penalties, a greedy row reports the softmax of the lowered logits.

A row with a grammar chooses among the tokens that the grammar allows: the logits of all others are
first set to minus infinity (`forbid`), for greedy rows too. So its log-probabilities are
conditional on the grammar, and differ from those of `score` for the same ids.

Draws are counter-based: the uniform number for the token at position t of a completion is a hash of
(seed, index, t). So a row's tokens depend neither on its neighbours in the batch nor on where it
was interrupted. The last bits of the logits do vary with the batch's shape, so a token whose
probability border is that close to the draw can differ.

Arrays are torch's or NumPy's, like the logits: the code uses the array API standard for both.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from array_api_compat import array_namespace, device

from loopline.workers.engines.faults import unit_interval

Array = Any
"""A torch.Tensor or a numpy.ndarray; the packages have no common type."""


@dataclass(frozen=True)
class RowSampling:
    """Sampling parameters of one row; `seed` and `index` identify its stream of draws."""

    temperature: float
    top_p: float
    top_k: int
    seed: int
    index: int
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0

    @property
    def penalizes(self) -> bool:
        return self.frequency_penalty != 0.0 or self.presence_penalty != 0.0

    @property
    def shapes(self) -> bool:
        """Whether it samples from a distribution other than the model's own. (Greedy rows without
        penalties report the model's.)"""
        changed = self.temperature != 1.0 or self.top_p < 1.0 or self.top_k > 0
        return self.penalizes or (self.temperature > 0.0 and changed)

    def draw(self, position: int) -> float:
        """The uniform number in [0, 1) for the token at `position`."""
        return unit_interval("draw", self.seed, self.index, position)


class Sampled(NamedTuple):
    """A token, with its log-probability under the distribution it was drawn from, and under the
    model's own: the softmax of its unchanged logits."""

    token: int
    logprob: float
    raw_logprob: float


def choose_tokens(
    logits: Array,
    allowed: Sequence[bytes | None],
    rows: Sequence[RowSampling],
    outputs: Sequence[Sequence[int]],
) -> list[Sampled | None]:
    """The next token of every row after its `outputs`, among those that its grammar allows (see
    `forbid`); None for a row whose logits are not finite (NaN or infinity), which does not affect
    the others.

    logits: [rows, vocabulary], any float type; computed in float32, summed in float64.
    """
    xp = array_namespace(logits)
    raw_scores = xp.astype(logits, xp.float32, copy=False)
    scores = forbid(penalized(raw_scores, rows, outputs), allowed)
    greedy = [i for i, row in enumerate(rows) if row.temperature == 0.0]
    drawn = [i for i, row in enumerate(rows) if row.temperature > 0.0]
    samples: dict[int, Sampled] = {}
    for places, choose in ((greedy, _choose_greedy), (drawn, _draw_tokens)):
        if places:
            tokens, logprobs = choose(
                _rows(scores, places),
                [rows[i] for i in places],
                [len(outputs[i]) for i in places],
            )
            for i, token, logprob in zip(places, tokens, logprobs, strict=True):
                samples[i] = Sampled(token, logprob, logprob)
    shaped = [i for i, row in enumerate(rows) if row.shapes or allowed[i] is not None]
    if shaped:
        logprobs = raw_logprobs(_rows(raw_scores, shaped), [samples[i].token for i in shaped])
        for i, raw in zip(shaped, logprobs, strict=True):
            samples[i] = samples[i]._replace(raw_logprob=raw)
    # Check the logits themselves: truncation (top k, top p) can drop the NaN that spoils a row.
    sound = xp.isfinite(_highest(raw_scores))[:, 0].tolist()
    return [samples[i] if sound[i] and _is_finite(samples[i]) else None for i in range(len(rows))]


def likeliest(
    logits: Array,
    allowed: Sequence[bytes | None],
    rows: Sequence[RowSampling],
    outputs: Sequence[Sequence[int]],
    count: int,
) -> list[list[tuple[int, float]]]:
    """Return up to `count` possible next tokens of each row, most likely first, with the
    log-probabilities that `choose_tokens` would report.

    logits: [rows, vocabulary], as for `choose_tokens`.
    """
    xp = array_namespace(logits)
    scores = forbid(penalized(xp.astype(logits, xp.float32), rows, outputs), allowed)
    result: list[list[tuple[int, float]]] = []
    for i, row in enumerate(rows):
        place = scores[i : i + 1, :]
        logprobs = (
            _log_softmax(place) if row.temperature == 0.0 else sampling_logprobs(place, [row])
        )
        order = xp.argsort(logprobs, axis=-1, descending=True, stable=True)[0, :count]
        pairs = zip(order.tolist(), logprobs[0, order].tolist(), strict=True)
        result.append([(token, logprob) for token, logprob in pairs if logprob > -math.inf])
    return result


def _is_finite(sampled: Sampled) -> bool:
    return math.isfinite(sampled.logprob) and math.isfinite(sampled.raw_logprob)


def _rows(scores: Array, places: Sequence[int]) -> Array:
    return scores if len(places) == scores.shape[0] else scores[list(places), :]


def _choose_greedy(
    scores: Array, rows: Sequence[RowSampling], positions: Sequence[int]
) -> tuple[list[int], list[float]]:
    xp = array_namespace(scores)
    tokens = xp.argmax(scores, axis=-1)
    # The greatest score becomes 0, so its log-probability is minus the logsumexp.
    return tokens.tolist(), (-_logsumexp(scores - _highest(scores)))[:, 0].tolist()


def _draw_tokens(
    scores: Array, rows: Sequence[RowSampling], positions: Sequence[int]
) -> tuple[list[int], list[float]]:
    xp = array_namespace(scores)
    support = sampling_logprobs(scores, rows)
    draws = [row.draw(position) for row, position in zip(rows, positions, strict=True)]
    on = {"dtype": xp.float64, "device": device(scores)}
    tokens = _inverse_cdf(support, xp.asarray(draws, **on)).tolist()
    return tokens, _logprobs_of_tokens(tokens, support)


def penalized(
    logits: Array, rows: Sequence[RowSampling], outputs: Sequence[Sequence[int]]
) -> Array:
    """The logits, [rows, vocabulary], lowered by each row's penalties for the tokens of its output;
    same shape."""
    places = [i for i, row in enumerate(rows) if row.penalizes and outputs[i]]
    if not places:
        return logits
    xp = array_namespace(logits)
    result = xp.asarray(logits, copy=True)
    for i in places:
        tokens, counts = np.unique(np.asarray(outputs[i]), return_counts=True)
        penalties = counts * rows[i].frequency_penalty + rows[i].presence_penalty
        lowered = xp.asarray(penalties.astype(np.float32), device=device(logits))
        index = xp.asarray(tokens, device=device(logits))
        result[i, index] = result[i, index] - lowered
    return result


def forbid(logits: Array, allowed: Sequence[bytes | None]) -> Array:
    """The logits with minus infinity for tokens that a row's grammar forbids; rows without a
    grammar are unchanged.

    logits: [rows, vocabulary]; same shape returned. allowed: for each row None (all), or one bit
    per token, the lowest bit of each byte first, with the same number of bytes in each row.
    """
    places = [place for place, bits in enumerate(allowed) if bits is not None]
    if not places:
        return logits
    xp = array_namespace(logits)
    joined = b"".join(bits for bits in allowed if bits is not None)
    packed = np.frombuffer(joined, dtype=np.uint8).reshape(len(places), -1)
    bits = np.unpackbits(packed, axis=1, bitorder="little")[:, : logits.shape[-1]]
    mask = xp.asarray(bits.astype(bool), device=device(logits))
    result = xp.asarray(logits, copy=True)
    result[places, :] = xp.where(mask, logits[places, :], -xp.inf)
    return result


def sample_given_token(
    logits: Array, allowed: bytes | None, row: RowSampling, token: int, output: Sequence[int]
) -> Sampled | None:
    """The sample for a token that another worker drew after `output`, from these logits, [1,
    vocabulary]; None if this row could not have drawn it."""
    xp = array_namespace(logits)
    raw_scores = xp.astype(logits, xp.float32)
    scores = forbid(penalized(raw_scores, [row], [output]), [allowed])
    if row.temperature > 0.0:
        scores = sampling_logprobs(scores, [row])
    (logprob,) = raw_logprobs(scores, [token])
    (raw,) = raw_logprobs(raw_scores, [token])
    sampled = Sampled(token, logprob, raw)
    return sampled if _is_finite(sampled) else None


def raw_logprobs(logits: Array, tokens: Sequence[int]) -> list[float]:
    """Log-probability of each token under the softmax of its row of [tokens, vocabulary]."""
    xp = array_namespace(logits)
    return _logprobs_of_tokens(tokens, _log_softmax(xp.astype(logits, xp.float32)))


def _logprobs_of_tokens(tokens: Sequence[int], logprobs: Array) -> list[float]:
    xp = array_namespace(logprobs)
    index = xp.asarray(tokens, dtype=xp.int64, device=device(logprobs))
    return xp.take_along_axis(logprobs, index[:, None], axis=-1)[:, 0].tolist()


def sampling_logprobs(scores: Array, rows: Sequence[RowSampling]) -> Array:
    """Log-probabilities after temperature, top_k and top_p; minus infinity outside the support.

    scores: [rows, vocabulary] float32; every row has a temperature above 0. Same shape returned.
    """
    xp = array_namespace(scores)
    on = {"device": device(scores)}
    temperature = xp.asarray([row.temperature for row in rows], dtype=xp.float32, **on)
    scaled = scores / temperature[:, None]
    if any(row.top_k or row.top_p < 1.0 for row in rows):
        scaled = xp.where(scaled >= _support_threshold(scaled, rows), scaled, -xp.inf)
    return _log_softmax(scaled)


def _support_threshold(scaled: Array, rows: Sequence[RowSampling]) -> Array:
    """The score of the last token in each row's support, [rows, 1]."""
    xp = array_namespace(scaled)
    on = {"device": device(scaled)}
    vocabulary = scaled.shape[-1]
    ordered = xp.sort(scaled, axis=-1, descending=True)
    last = [min(row.top_k or vocabulary, vocabulary) - 1 for row in rows]
    index = xp.asarray(last, dtype=xp.int64, **on)[:, None]
    lowest = xp.take_along_axis(ordered, index, axis=-1)
    if all(row.top_p == 1.0 for row in rows):
        return lowest
    top_scores = xp.where(ordered >= lowest, ordered, -xp.inf)
    mass = xp.exp(xp.astype(top_scores - _highest(top_scores), xp.float64))
    before = xp.cumulative_sum(mass, axis=-1) - mass
    # A row with top_p = 1 keeps all tokens, even if rounding changes the sum.
    shares = [row.top_p if row.top_p < 1.0 else math.inf for row in rows]
    limit = xp.asarray(shares, dtype=xp.float64, **on)[:, None]
    within = (before < limit * xp.sum(mass, axis=-1, keepdims=True)) & (mass > 0.0)
    return xp.min(xp.where(within, top_scores, xp.inf), axis=-1, keepdims=True)


def _highest(scores: Array) -> Array:
    return array_namespace(scores).max(scores, axis=-1, keepdims=True)


def _logsumexp(shifted: Array) -> Array:
    """[rows, 1]; for scores whose maximum is near 0."""
    xp = array_namespace(shifted)
    return xp.log(xp.sum(xp.exp(shifted), axis=-1, keepdims=True))


def _log_softmax(scores: Array) -> Array:
    shifted = scores - _highest(scores)
    return shifted - _logsumexp(shifted)


def _inverse_cdf(logprobs: Array, draws: Array) -> Array:
    """The first token whose cumulative probability exceeds the draw; [rows] of token ids."""
    xp = array_namespace(logprobs)
    cumulative = xp.cumulative_sum(xp.exp(xp.astype(logprobs, xp.float64)), axis=-1)
    total = cumulative[:, -1]
    # Rounding may raise draw * total to the total itself, which selects no token.
    target = xp.minimum(draws * total, xp.nextafter(total, xp.zeros_like(total)))
    return xp.sum(xp.astype(cumulative <= target[:, None], xp.int64), axis=-1)
