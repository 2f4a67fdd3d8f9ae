"""Every loss compared with an independent reference of a few lines, in plain floats."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from loopline.trainers.grpo import ratios
from loopline.trainers.grpo.losses import (
    Correction,
    Normalisation,
    Objective,
    Tokens,
    behaviour_weights,
    divergences,
    has_no_gradient,
    k3,
    policy_losses,
    shares,
)
from loopline.trainers.grpo.ratios import QUANTILES, effective_sample_size, ratio_quantiles


@dataclass(frozen=True)
class Token:
    """log π_θ, log π_prox, log π_behav, log π_ref, and the advantage of its sequence."""

    now: float
    proximal: float
    behaviour: float
    reference: float
    advantage: float
    sequence: int


LOGPROBS = st.floats(-6, 0).map(lambda value: round(value, 4))


@st.composite
def batches(draw: st.DrawFn) -> list[Token]:
    """Sequences of a few tokens."""
    tokens: list[Token] = []
    for sequence in range(draw(st.integers(1, 4))):
        advantage = round(draw(st.floats(-2, 2)), 3)
        for _ in range(draw(st.integers(1, 5))):
            now, proximal, behaviour, reference = (draw(LOGPROBS) for _ in range(4))
            tokens.append(Token(now, proximal, behaviour, reference, advantage, sequence))
    return tokens


def tensors(batch: Sequence[Token]) -> tuple[Tokens, torch.Tensor]:
    """The batch, and the reference's log-probabilities."""

    def column(values: Sequence[float]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.float64)

    tokens = Tokens(
        logprobs=column([token.now for token in batch]).requires_grad_(),
        proximal=column([token.proximal for token in batch]),
        behaviour=column([token.behaviour for token in batch]),
        advantages=column([token.advantage for token in batch]),
        sequence=torch.tensor([token.sequence for token in batch]),
    )
    return tokens, column([token.reference for token in batch])


def clipped(ratio: float, advantage: float, low: float, high: float) -> float:
    return -min(ratio * advantage, max(min(ratio, 1 + high), 1 - low) * advantage)


def near(actual: torch.Tensor, expected: Sequence[float]) -> bool:
    return actual.detach().tolist() == pytest.approx(list(expected), rel=1e-9, abs=1e-9)


@given(batches(), st.floats(0, 0.5), st.floats(0, 0.5))
def test_without_correction_the_loss_clips_the_ratio_to_the_step_s_initial_policy(
    batch: list[Token], low: float, high: float
) -> None:
    tokens, _ = tensors(batch)
    objective = Objective(correction="none", clip_low=low, clip_high=high)
    expected = [
        clipped(math.exp(token.now - token.proximal), token.advantage, low, high) for token in batch
    ]
    assert near(policy_losses(tokens, objective), expected)


@given(batches())
def test_plain_clipping_uses_the_sampler_as_the_old_policy(batch: list[Token]) -> None:
    tokens, _ = tensors(batch)
    expected = [
        clipped(math.exp(token.now - token.behaviour), token.advantage, 0.2, 0.28)
        for token in batch
    ]
    assert near(policy_losses(tokens, Objective(correction="clip")), expected)


@given(batches(), st.floats(0.5, 5))
def test_decoupled_losses_are_weighted_by_the_ratio_of_old_policy_to_sampler(
    batch: list[Token], cap: float
) -> None:
    tokens, _ = tensors(batch)
    plain = [
        clipped(math.exp(token.now - token.proximal), token.advantage, 0.2, 0.28) for token in batch
    ]
    by_token = [min(math.exp(token.proximal - token.behaviour), cap) for token in batch]
    losses = policy_losses(tokens, Objective(correction="token", cap=cap))
    assert near(losses, [w * loss for w, loss in zip(by_token, plain, strict=True)])
    whole = [
        math.exp(sum(o.proximal - o.behaviour for o in batch if o.sequence == token.sequence))
        for token in batch
    ]
    if any(abs(weight - cap) < 1e-6 for weight in whole):
        return
    masked = [0.0 if weight > cap else weight for weight in whole]
    losses = policy_losses(tokens, Objective(correction="sequence", cap=cap))
    assert near(losses, [w * loss for w, loss in zip(masked, plain, strict=True)])


@given(batches())
def test_the_truncated_gradient_is_weight_times_advantage_at_every_token(
    batch: list[Token],
) -> None:
    tokens, _ = tensors(batch)
    policy_losses(tokens, Objective(correction="truncated", cap=2.0)).sum().backward()
    expected = [
        -min(math.exp(token.now - token.behaviour), 2.0) * token.advantage for token in batch
    ]
    assert tokens.logprobs.grad is not None
    assert near(tokens.logprobs.grad, expected)


@given(batches())
def test_decoupled_weights_have_no_gradient(batch: list[Token]) -> None:
    """The gradient is w · ρ · A inside the clip range, and zero where it is clipped."""
    tokens, _ = tensors(batch)
    policy_losses(tokens, Objective(correction="token", cap=5.0)).sum().backward()
    for token, gradient in zip(batch, tokens.logprobs.grad.tolist(), strict=True):  # pyright: ignore[reportOptionalMemberAccess]
        ratio = math.exp(token.now - token.proximal)
        weight = min(math.exp(token.proximal - token.behaviour), 5.0)
        cut = ratio > 1.28 if token.advantage > 0 else ratio < 0.8
        expected = 0.0 if cut else -weight * ratio * token.advantage
        if min(abs(ratio - 1.28), abs(ratio - 0.8)) > 1e-6:
            assert gradient == pytest.approx(expected, rel=1e-9, abs=1e-12)


@given(batches(), st.floats(1.5, 4))
def test_the_dual_clip_bounds_the_loss_of_bad_samples_only(
    batch: list[Token], bound: float
) -> None:
    tokens, _ = tensors(batch)
    plain = policy_losses(tokens, Objective(correction="none")).tolist()
    losses = policy_losses(tokens, Objective(correction="none", dual_clip=bound)).tolist()
    for token, before, after in zip(batch, plain, losses, strict=True):
        expected = min(before, -bound * token.advantage) if token.advantage < 0 else before
        assert after == pytest.approx(expected)


@given(
    batches(),
    st.sampled_from(["none", "clip", "truncated", "token", "sequence"]),
    st.one_of(st.none(), st.floats(1.01, 5)),
)
def test_the_tokens_counted_as_clipped_are_those_whose_loss_has_no_gradient(
    batch: list[Token], correction: Correction, dual: float | None
) -> None:
    batch = [replace(token, advantage=token.advantage or 1.0) for token in batch]
    tokens, _ = tensors(batch)
    objective = Objective(correction=correction, dual_clip=dual)
    policy_losses(tokens, objective).sum().backward()
    assert tokens.logprobs.grad is not None
    flat = tokens.logprobs.grad == 0
    assert flat.tolist() == has_no_gradient(tokens, objective).tolist()


@given(batches())
def test_k3_follows_its_formula_and_is_never_negative(batch: list[Token]) -> None:
    tokens, reference = tensors(batch)
    estimates = k3(tokens.logprobs, reference)
    apart = [item.reference - item.now for item in batch]
    assert near(estimates, [math.exp(item) - item - 1 for item in apart])
    assert bool((estimates >= 0).all())


def test_k3_estimates_the_divergence_even_from_samples_of_another_policy() -> None:
    """Exact, over all three tokens of a vocabulary, each with its probability."""
    logprobs, reference, sampler = (
        torch.tensor(probabilities, dtype=torch.float64).log()
        for probabilities in ([0.2, 0.3, 0.5], [0.5, 0.25, 0.25], [0.3, 0.3, 0.4])
    )
    expected = float((logprobs.exp() * (logprobs - reference)).sum())
    assert float((logprobs.exp() * k3(logprobs, reference)).sum()) == pytest.approx(expected)
    tokens = Tokens(logprobs, logprobs, sampler, torch.zeros(3), torch.arange(3))
    for correction in ("clip", "token"):
        estimates = divergences(tokens, reference, Objective(correction=correction, cap=9.0))
        assert float((sampler.exp() * estimates).sum()) == pytest.approx(expected)


@given(batches(), st.sampled_from(["token", "constant", "sequence"]), st.integers(5, 50))
def test_normalised_sums_are_means_over_tokens_sequences_or_a_constant(
    batch: list[Token], how: Normalisation, limit: int
) -> None:
    tokens, _ = tensors(batch)
    losses = [float(at) for at in range(len(batch))]
    counts = torch.bincount(tokens.sequence)
    weights = shares(tokens.sequence, counts, how, limit)
    total = float((weights * torch.tensor(losses)).sum())
    by_sequence = [
        [loss for loss, token in zip(losses, batch, strict=True) if token.sequence == number]
        for number in range(len(counts))
    ]
    expected = {
        "token": sum(losses) / len(losses),
        "constant": sum(losses) / (len(counts) * limit),
        "sequence": sum(
            sum(sequence_losses) / len(sequence_losses) for sequence_losses in by_sequence
        )
        / len(by_sequence),
    }
    assert total == pytest.approx(expected[how], rel=1e-5)


@given(batches())
def test_parts_of_a_minibatch_add_up_to_the_whole(batch: list[Token]) -> None:
    """Gradients may be accumulated over parts: the denominators are those of the whole."""
    tokens, _ = tensors(batch)
    counts = torch.bincount(tokens.sequence)
    whole = shares(tokens.sequence, counts, "sequence", 1)
    first = tokens.sequence == 0
    parts = [shares(tokens.sequence[mask], counts, "sequence", 1) for mask in (first, ~first)]
    assert torch.equal(torch.cat(parts), torch.cat([whole[first], whole[~first]]))


def test_a_runaway_ratio_is_clipped_without_becoming_nan() -> None:
    far = Tokens(
        torch.tensor([-1.0]).requires_grad_(), torch.tensor([-1.0]), torch.tensor([-500.0]),
        torch.tensor([1.0]), torch.tensor([0]),
    )  # fmt: skip
    assert behaviour_weights(far, Objective(correction="token", cap=2.0)).tolist() == [2.0]
    assert behaviour_weights(far, Objective(correction="sequence", cap=3.0)).tolist() == [0.0]
    loss = policy_losses(far, Objective(correction="token")).sum()
    loss.backward()
    assert math.isfinite(float(loss.detach()))
    assert far.logprobs.grad is not None
    assert math.isfinite(float(far.logprobs.grad))


@given(st.lists(st.floats(-700, 700), min_size=1, max_size=30))
def test_the_effective_sample_size_is_a_share_that_ignores_scale(logs: list[float]) -> None:
    tensor = torch.tensor(logs, dtype=torch.float64)
    share = effective_sample_size(tensor)
    assert 1 / len(logs) - 1e-9 <= share <= 1 + 1e-9
    assert effective_sample_size(tensor + 3.0) == pytest.approx(share)
    small = [value / 100 for value in logs]
    weights = [math.exp(value) for value in small]
    expected = sum(weights) ** 2 / (len(weights) * sum(w * w for w in weights))
    assert effective_sample_size(torch.tensor(small).double()) == pytest.approx(expected)


def test_quantiles_describe_ratios_and_not_their_logarithms() -> None:
    assert ratio_quantiles(torch.zeros(0)) == (1.0,) * len(QUANTILES)
    logs = torch.tensor([math.log(ratio) for ratio in range(1, 102)])
    assert ratio_quantiles(logs) == pytest.approx((2, 6, 51, 96, 100), rel=0.02)


@pytest.mark.parametrize("count", [10, 11, 15, 19, 20, 21, 29])
def test_quantiles_of_many_ratios_include_the_last_ones(
    monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """Rows are sorted by length: the longest are the last."""
    monkeypatch.setattr(ratios, "MOST", 10)
    logs = torch.linspace(0.0, 1.0, count)
    assert math.log(ratio_quantiles(logs)[-1]) > 0.85
