"""From logits to a token and its exact log-probability, each row by its own parameters.

The log-probability is that of the distribution the token was drawn from: softmax of the logits
divided by the temperature, cut to the top k, then to the smallest set that holds top_p of the
mass, renormalised. Greedy rows draw nothing; by convention they report the softmax of the raw
logits, which is what a later sample at temperature 1 would be compared with.

A row with a grammar chooses among the tokens that the grammar allows: the logits of all others
are minus infinity before anything else happens (`forbid`), for greedy rows too. So its
log-probabilities are conditional on the grammar, and not what `score` gives for the same ids.

Draws are counter-based: the uniform number behind the token at position t of a completion is a
hash of (seed, index, t). So a row's tokens depend neither on its neighbours in the batch nor on
where it was interrupted, except through the last bits of the logits: these do vary with the
batch's shape, so a token whose probability border lies that close to the draw can differ.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from workers.engines.faults import unit_interval


@dataclass(frozen=True)
class RowSampling:
    """Sampling of one row; `seed` and `index` name its stream of draws."""

    temperature: float
    top_p: float
    top_k: int
    seed: int
    index: int

    def draw(self, position: int) -> float:
        """The uniform number in [0, 1) for the token at `position`."""
        return unit_interval("draw", self.seed, self.index, position)


def choose_tokens(
    logits: torch.Tensor, rows: Sequence[RowSampling], positions: Sequence[int]
) -> tuple[list[int], list[float]]:
    """Next token and its log-probability for every row.

    logits: [rows, vocabulary], any float type; computed in float32, summed in float64.
    Raises FloatingPointError if a row's logits are not finite where it samples.
    """
    scores = logits.float()
    greedy = [i for i, row in enumerate(rows) if row.temperature == 0.0]
    if len(greedy) == len(rows):
        tokens, logprobs = _greedy(scores)
    else:
        sampled = [i for i, row in enumerate(rows) if row.temperature > 0.0]
        parameters = [rows[i] for i in sampled]
        support = sampling_logprobs(scores[sampled] if greedy else scores, parameters)
        draws = torch.tensor(
            [rows[i].draw(positions[i]) for i in sampled],
            dtype=torch.float64,
            device=scores.device,
        )
        tokens = _inverse_cdf(support, draws)
        logprobs = support.gather(-1, tokens[:, None])[:, 0]
        if greedy:
            of_greedy = _greedy(scores[greedy])
            order = torch.tensor([*greedy, *sampled], device=scores.device).argsort()
            tokens = torch.cat([of_greedy[0], tokens])[order]
            logprobs = torch.cat([of_greedy[1], logprobs])[order]
    found = logprobs.tolist()
    if not all(map(math.isfinite, found)):
        raise FloatingPointError(
            "the model's logits are not finite (NaN or infinity); try dtype = 'float32'"
        )
    return tokens.tolist(), found


def _greedy(scores: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    best = scores.max(dim=-1)
    return best.indices, best.values - scores.logsumexp(dim=-1)


def forbid(logits: torch.Tensor, allowed: Sequence[bytes | None]) -> torch.Tensor:
    """Minus infinity for what each row's grammar does not allow next; other rows as they are.

    logits: [rows, vocabulary]; same shape back. allowed: for each row None (everything), or one
    bit per token, the lowest bit of each byte first, equally many bytes in each row.
    """
    places = [place for place, bits in enumerate(allowed) if bits is not None]
    if not places:
        return logits
    joined = bytearray().join(bits for bits in allowed if bits is not None)
    packed = torch.frombuffer(joined, dtype=torch.uint8).view(len(places), -1, 1)
    each_bit = [1 << place for place in range(8)]
    bits = packed.to(logits.device) & torch.tensor(
        each_bit, dtype=torch.uint8, device=logits.device
    )
    dropped = bits.flatten(1)[:, : logits.shape[-1]] == 0
    result = logits.clone()
    for place, gone in zip(places, dropped, strict=True):
        result[place].masked_fill_(gone, -torch.inf)
    return result


def given_logprobs(logits: torch.Tensor, row: RowSampling, tokens: Sequence[int]) -> list[float]:
    """Log-probabilities of tokens that were drawn before (by another worker) from `logits`.

    logits: [tokens, vocabulary]. Minus infinity for a token that this row could not have drawn.
    """
    scores = logits.float()
    if row.temperature == 0.0:
        known = scores.log_softmax(dim=-1)
    else:
        known = sampling_logprobs(scores, [row] * len(tokens))
    index = torch.tensor(tokens, dtype=torch.long, device=scores.device)
    return known.gather(-1, index[:, None])[:, 0].tolist()


def sampling_logprobs(scores: torch.Tensor, rows: Sequence[RowSampling]) -> torch.Tensor:
    """Log-probabilities after temperature, top_k and top_p; minus infinity outside the support.

    scores: [rows, vocabulary] float32; every row has a temperature above 0. Same shape back.
    """
    temperature = torch.tensor([row.temperature for row in rows], device=scores.device)
    scaled = scores / temperature[:, None]
    if any(row.top_k for row in rows):
        scaled = _keep_top_k(scaled, [row.top_k for row in rows])
    if any(row.top_p < 1.0 for row in rows):
        scaled = _keep_top_p(scaled, [row.top_p for row in rows])
    return scaled.log_softmax(dim=-1)


def _keep_top_k(scaled: torch.Tensor, limits: Sequence[int]) -> torch.Tensor:
    """Ties with the k-th score are kept too, so that the support does not depend on the order."""
    vocabulary = scaled.shape[-1]
    wanted = [min(limit, vocabulary) if limit else vocabulary for limit in limits]
    largest = scaled.topk(max(wanted), dim=-1).values
    index = torch.tensor(wanted, device=scaled.device)[:, None] - 1
    return scaled.masked_fill(scaled < largest.gather(-1, index), -torch.inf)


def _keep_top_p(scaled: torch.Tensor, limits: Sequence[float]) -> torch.Tensor:
    ordered, order = scaled.sort(dim=-1, descending=True, stable=True)
    probabilities = ordered.double().softmax(dim=-1)
    before = probabilities.cumsum(dim=-1) - probabilities
    limit = torch.tensor(limits, dtype=torch.float64, device=scaled.device)[:, None]
    # A row with top_p = 1 keeps everything, whatever rounding did to the sum.
    dropped = (before >= limit) & (limit < 1.0)
    return scaled.masked_fill(torch.zeros_like(dropped).scatter(-1, order, dropped), -torch.inf)


def _inverse_cdf(logprobs: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
    """The first token whose cumulative probability exceeds the draw; [rows] of token ids."""
    cumulative = logprobs.double().exp().cumsum(dim=-1)
    total = cumulative[:, -1]
    # Rounding may lift draw * total to the total itself, where no token lies.
    target = torch.minimum(draws * total, torch.nextafter(total, torch.zeros_like(total)))
    return torch.searchsorted(cumulative, target[:, None], right=True)[:, 0]
